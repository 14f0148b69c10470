#include "simulator/network/nccl.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/error.h"
#include "simulator/network/collective_time.h"

namespace lockstep::simulator {
namespace {

double& number_in(Machine& machine, NcclNumber number) {
  switch (number) {
    case NcclNumber::collective_efficiency:
      return machine.levels.front().collective_efficiency;
    case NcclNumber::simple_step_us:
      return machine.nccl->simple_step_us;
    case NcclNumber::ll128:
      return machine.nccl->ll128;
    case NcclNumber::last_copy:
      return machine.nccl->last_copy;
    case NcclNumber::nvls:
      return machine.nccl->nvls;
    case NcclNumber::start_us:
      break;
  }
  return machine.nccl->start_us;
}

bool is_share(NcclNumber number) {
  return number == NcclNumber::collective_efficiency || number == NcclNumber::ll128 || number == NcclNumber::nvls;
}

double squared_errors(const Machine& machine, std::span<const CollectivePoint> points) {
  double sum = 0;
  for (const CollectivePoint& point : points) {
    const double error = predicted_us(machine, point) / point.us - 1;
    sum += error * error;
  }
  return sum;
}

std::vector<CollectivePoint> points_of(const Machine& base, std::span<const RowLine> rows) {
  std::vector<CollectivePoint> points;
  for (const RowLine& row : rows) {
    if (row.ranks < 2 || row.ranks > base.levels.front().ranks) continue;
    for (const auto comm : {schedules::Comm::all_reduce, schedules::Comm::all_gather, schedules::Comm::reduce_scatter,
                            schedules::Comm::all_to_all}) {
      if (row.collective == schedules::name_of(comm)) points.push_back({comm, row.ranks, row.bytes, row.time_us});
    }
  }
  return points;
}

// The numbers on which the time of any of the points depends.
std::vector<NcclNumber> numbers_of(const Machine& machine, std::span<const CollectivePoint> points) {
  std::vector<NcclNumber> numbers{NcclNumber::start_us};
  const auto add_if = [&](NcclNumber number, auto depends) {
    if (std::any_of(points.begin(), points.end(), [&](const auto& one) { return depends(predicted(machine, one)); })) {
      numbers.push_back(number);
    }
  };
  add_if(NcclNumber::simple_step_us, [](const CollectivePrediction& made) {
    return made.protocol == Protocol::simple && made.algorithm == CollectiveAlgorithm::ring;
  });
  add_if(NcclNumber::collective_efficiency,
         [](const CollectivePrediction& made) { return made.algorithm != CollectiveAlgorithm::nvls; });
  add_if(NcclNumber::ll128, [](const CollectivePrediction& made) { return made.protocol == Protocol::ll128; });
  add_if(NcclNumber::nvls,
         [](const CollectivePrediction& made) { return made.algorithm == CollectiveAlgorithm::nvls; });
  return numbers;
}

}  // namespace

CollectivePrediction predicted(const Machine& machine, const CollectivePoint& point) {
  std::vector<std::int64_t> members(machine.levels.size(), point.ranks);
  members.front() = point.ranks / point.nodes;
  return best_collective(machine, point.comm, point.bytes, members);
}

double predicted_us(const Machine& machine, const CollectivePoint& point) {
  return predicted(machine, point).time_us();
}

double value_of(const Machine& machine, NcclNumber number) {
  Machine copy = machine;
  return number_in(copy, number);
}

// Pattern search: changes one number at a time by factors that shrink when no change helps.
Machine fit_nccl(Machine machine, std::span<const CollectivePoint> points, std::span<const NcclNumber> numbers) {
  constexpr double kFirstStep = 0.2;
  constexpr double kLastStep = 1e-5;
  double least = squared_errors(machine, points);
  for (double step = kFirstStep; step > kLastStep;) {
    bool better = false;
    for (const NcclNumber number : numbers) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        Machine tried = machine;
        number_in(tried, number) *= factor;
        if (is_share(number) && number_in(tried, number) > 1) continue;
        const double sum = squared_errors(tried, points);
        if (sum >= least) continue;
        least = sum;
        machine = std::move(tried);
        better = true;
        break;
      }
    }
    if (!better) step /= 2;
  }
  return machine;
}

Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where) {
  constexpr std::size_t kFewestSizes = 4;
  if (!base.nccl) throw core::usage_error(base.name + ": has no NCCL; allowed: a description with `nccl`");
  const std::vector<CollectivePoint> points = points_of(base, rows);
  std::set<double> sizes;
  for (const CollectivePoint& point : points) sizes.insert(point.bytes);
  if (sizes.size() < kFewestSizes) {
    throw core::usage_error(where + ": rows of NCCL's collectives at " + std::to_string(sizes.size()) +
                            " sizes within one node; allowed: four or more (all_reduce_perf --transport nccl --algo "
                            "library -b 1K -e 1G --json)");
  }
  const std::vector<NcclNumber> numbers = numbers_of(base, points);
  Machine fitted = fit_nccl(base, points, numbers);
  double worst = 0;
  for (const CollectivePoint& point : points) {
    worst = std::max(worst, std::abs(predicted_us(fitted, point) / point.us - 1));
  }
  std::string names;
  for (const NcclNumber number : numbers) {
    names += (names.empty() ? "" : ", ") + std::string(kNcclNumbers.at(static_cast<std::size_t>(number)));
  }
  fitted.name = base.name + ", collectives as measured";
  fitted.sources.push_back("measured by Lockstep: " + where + ": " + names + " fitted to " +
                           std::to_string(points.size()) + " rows of NCCL's collectives, the worst of them off by " +
                           std::to_string(std::lround(100 * worst)) + " %");
  return fitted;
}

}  // namespace lockstep::simulator
