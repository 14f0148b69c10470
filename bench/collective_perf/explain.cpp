#include "bench/collective_perf/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "collectives/executors/executors.h"
#include "collectives/executors/program_time.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "core/statistics.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::sweep {
namespace {

constexpr std::array<std::int64_t, 7> kShiftBytes{64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};

collectives::Operation ring_shift(std::int64_t size_bytes) {
  collectives::Operation operation;
  operation.kind = collectives::Kind::send_recv;
  operation.count = size_bytes / static_cast<std::int64_t>(core::size_of(operation.dtype));
  return operation;
}

}  // namespace

std::size_t cost_model_pool_bytes(int num_ranks, const TrialOptions& options) {
  std::size_t most = 0;
  for (std::int64_t bytes : kShiftBytes) most = std::max(most, pool_bytes(ring_shift(bytes), num_ranks, options));
  return most;
}

plan::CostModel fit_alpha_beta(const std::vector<TimedSize>& points) {
  // Normal equations of the weighted problem, weights 1 / us^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const TimedSize& p : points) {
    const double weight = 1 / (p.us * p.us);
    w += weight;
    wx += weight * p.bytes;
    wxx += weight * p.bytes * p.bytes;
    wy += weight * p.us;
    wxy += weight * p.bytes * p.us;
  }
  const double determinant = w * wxx - wx * wx;
  plan::CostModel model;
  if (points.size() < 2 || determinant <= 0) {
    model.alpha_us = w > 0 ? wy / w : 0;
    return model;
  }
  model.alpha_us = (wxx * wy - wx * wxy) / determinant;
  model.beta_us_per_byte = (w * wxy - wx * wy) / determinant;
  if (model.alpha_us < 0) model = {0, wxy / wxx, 0, 0};
  if (model.beta_us_per_byte < 0) model = {wy / w, 0, 0, 0};
  return model;
}

plan::CostModel measure_cost_model(backends::Endpoint& endpoint, std::byte* pool, std::uint64_t& rounds,
                                   const TrialOptions& options) {
  constexpr int kRounds = 3;
  constexpr int kSamples = 8;
  std::map<std::int64_t, double> best_us;  // by size in bytes
  for (int round = 0; round < kRounds; ++round) {
    for (std::int64_t bytes : kShiftBytes) {
      const collectives::Operation operation = ring_shift(bytes);
      Trial trial(endpoint, operation, endpoint.prepare(operation, "direct"), pool, rounds, options);
      trial.warm_up(2);
      while (trial.measured().samples_us.size() < kSamples) {
        trial.run_batch(kSamples - static_cast<int>(trial.measured().samples_us.size()));
      }
      const auto samples_us = combine(endpoint.world, operation, trial, {}, false).samples_us;
      const double us = std::max(*std::min_element(samples_us.begin(), samples_us.end()), 1e-3);
      const auto known = best_us.try_emplace(bytes, us).first;
      known->second = std::min(known->second, us);
    }
  }
  std::vector<TimedSize> points;
  for (const auto& [bytes, us] : best_us) points.push_back({static_cast<double>(bytes), us});
  return fit_alpha_beta(points);
}

PlanFacts facts_of(const plan::Plan& plan, const collectives::Operation& operation, const plan::CostModel* model) {
  const plan::Contents contents = plan::contents_of(plan, {.capacity = plan::kUnbounded});
  const plan::Counts counts = plan::count(plan, contents, operation);
  PlanFacts facts{{counts.steps, counts.busiest().bytes_sent}, {}, {}};
  for (const plan::RankCounts& rank : counts.ranks) facts.wire_bytes_total += rank.bytes_sent;
  if (model) facts.predicted_us = plan::predict(plan, contents, operation, *model).time_us;
  return facts;
}

namespace {

using collectives::Operation;
using executors::ProgramTime;

std::int64_t element_bytes(const Operation& operation) {
  return static_cast<std::int64_t>(core::size_of(operation.dtype));
}

// c = a (+) b over thirds of the memory, one block at a time.
class Passes {
 public:
  Passes(const Operation& operation, std::span<std::byte> memory, std::int64_t piece_bytes)
      : operation_(operation), memory_(memory), piece_(piece_bytes / element_bytes(operation)) {
    std::memset(memory.data(), 0, memory.size());
  }
  // Bytes read and written, at least the number asked for, and processor time of the passes added up as a paced call
  // spends it.
  struct Done {
    std::int64_t bytes = 0;
    std::int64_t core_ns = 0;
  };
  Done run(std::int64_t least_bytes, bool is_timed) const {
    const std::int64_t third = static_cast<std::int64_t>(memory_.size()) / 3 / element_bytes(operation_);
    Done done;
    for (std::int64_t at = 0; done.bytes < least_bytes; at = at + 2 * piece_ <= third ? at + piece_ : 0) {
      const std::int64_t begin_ns = is_timed ? transports::thread_time_ns() : 0;
      pass(at, third);
      if (is_timed) done.core_ns += transports::thread_time_ns() - begin_ns;
      done.bytes += 3 * piece_ * element_bytes(operation_);
    }
    return done;
  }

 private:
  void pass(std::int64_t at, std::int64_t third) const {
    const auto place = [&](std::int64_t part) {
      return memory_.data() + (part * third + at) * element_bytes(operation_);
    };
    const void* sources[] = {place(0), place(1)};
    void* destinations[] = {place(2)};
    kernels::reduce({operation_.dtype, core::ReduceOp::max, destinations, sources, piece_});
  }

  const Operation& operation_;
  const std::span<std::byte> memory_;
  const std::int64_t piece_;
};

struct Round {
  std::int64_t begin_ns, end_ns, bytes;
  double core_us_per_byte;
};

}  // namespace

MachineCost measure_machine_cost(transports::World& world, const Operation& operation, std::span<std::byte> memory) {
  constexpr int kRounds = 9;
  constexpr std::int64_t kLeastBytes = 1 << 20;
  const std::int64_t row = std::max<std::int64_t>(row_bytes(operation, world.num_ranks()), 1);
  const std::int64_t least = 64 * element_bytes(operation);
  const std::int64_t piece =
      std::clamp(row / world.num_ranks(), least, executors::DirectOptions{}.segment_bytes) / least * least;
  const auto used = static_cast<std::size_t>(std::max<std::int64_t>({2 * row, 3 * piece, kLeastBytes}));
  if (static_cast<std::int64_t>(memory.size()) < 3 * piece) return {};
  memory = memory.first(std::min(memory.size(), used));
  const Passes passes(operation, memory, piece);
  std::vector<double> core;
  double machine = std::numeric_limits<double>::max();
  for (int i = 0; i < kRounds; ++i) {
    const Passes::Done timed = passes.run(static_cast<std::int64_t>(used), true);
    world.barrier();
    Round mine{transports::now_ns(), 0, passes.run(static_cast<std::int64_t>(used), false).bytes, 0};
    mine.end_ns = transports::now_ns();
    mine.core_us_per_byte = static_cast<double>(timed.core_ns) / 1e3 / static_cast<double>(timed.bytes);
    Round all = mine;
    all.bytes = 0;
    for (const Round& round : transports::all_gather_value(world, mine)) {
      all.begin_ns = std::min(all.begin_ns, round.begin_ns);
      all.end_ns = std::max(all.end_ns, round.end_ns);
      all.bytes += round.bytes;
      core.push_back(round.core_us_per_byte);
    }
    machine = std::min(machine, static_cast<double>(all.end_ns - all.begin_ns) / 1e3 / static_cast<double>(all.bytes));
  }
  return {core::median(core), machine};
}

void predict_on_links(PlanFacts& facts, const plan::Plan& plan, const Operation& operation,
                      const transports::LinkSpec& link, const MachineCost& cost, int calls_of_a_batch) {
  const plan::Program program = executors::lower_for_direct(plan, operation, {});
  const ProgramTime time(program, element_bytes(operation));
  const auto ranks = static_cast<std::size_t>(program.num_ranks);
  std::vector<std::vector<std::int64_t>> costs(ranks, std::vector<std::int64_t>(time.num_costs(), 0));
  const auto play_us = [&] {
    std::vector<transports::LinkTable::Port> ports(ranks);
    transports::LinkTable links(link, ports.data());
    std::vector<ProgramTime::RankClock> clocks;
    for (const auto& of_rank : costs) clocks.push_back({0, of_rank.data()});
    std::vector<double> slowest_us;
    for (int call = 0; call < calls_of_a_batch; ++call) {
      const auto leaves = time.play(
          clocks, [](int rank) { return rank; }, links);
      std::int64_t slowest_ns = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        slowest_ns = std::max(slowest_ns, leaves[r] - clocks[r].entered_ns);
        clocks[r].entered_ns = leaves[r];
      }
      slowest_us.push_back(static_cast<double>(slowest_ns) / 1e3);
    }
    return core::median(slowest_us);
  };
  facts.links_us = play_us();
  double moved = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t l = 0; l < program.ranks[r].lanes.size(); ++l) {
      const plan::LaneProgram& lane = program.ranks[r].lanes[l];
      for (std::size_t i = 0; i < lane.instructions.size(); ++i) {
        const plan::Instruction& instruction = lane.instructions[i];
        if (instruction.num_destinations == 0) continue;
        const double bytes = static_cast<double>((instruction.num_sources + instruction.num_destinations) *
                                                 instruction.count * element_bytes(operation));
        moved += bytes;
        const double own = executors::own_part(lane, instruction, static_cast<int>(r));
        costs[r][time.cost_index(static_cast<int>(l), i)] =
            static_cast<std::int64_t>(1e3 * own * bytes * cost.core_us_per_byte);
      }
    }
  }
  facts.predicted_us = play_us();
  facts.memory_us = moved * cost.machine_us_per_byte;
}

}  // namespace lockstep::sweep
