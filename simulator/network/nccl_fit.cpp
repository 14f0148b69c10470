#include "simulator/network/nccl_fit.h"

#include <algorithm>
#include <vector>

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

double squared_errors(const Machine& machine, std::span<const CollectivePoint> points) {
  double sum = 0;
  for (const CollectivePoint& point : points) {
    const double error = predicted_us(machine, point) / point.us - 1;
    sum += error * error;
  }
  return sum;
}

}  // namespace

double predicted_us(const Machine& machine, const CollectivePoint& point) {
  const std::vector<std::int64_t> members(machine.levels.size(), point.ranks);
  return best_collective(machine, point.comm, point.bytes, members).time_us();
}

double value_of(const Machine& machine, NcclNumber number) {
  Machine copy = machine;
  return number_in(copy, number);
}

// One number after the other, by factors that shrink once none helps (pattern search).
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

}  // namespace lockstep::simulator
