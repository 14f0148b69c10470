#include "simulator/predict/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "simulator/contention/contended.h"
#include "simulator/network/collective_time.h"

namespace lockstep::simulator {
namespace {

using schedules::Lane;
using schedules::Step;
using schedules::Task;

LanesBeside lanes_beside() {
  LanesBeside beside = {};
  for (const Lane lane : {Lane::gather, Lane::reduce, Lane::replicas, Lane::copy})
    beside[static_cast<std::size_t>(lane)] = true;
  return beside;
}

// Time of a message: measured, or by the innermost level.
double message_us(const Machine& machine, double bytes) {
  constexpr int kTwoRanks = 2;
  if (const auto* const measured = machine.measured.find("send_recv", kTwoRanks)) return measured_us(*measured, bytes);
  const NetworkLevel& level = machine.levels.front();
  return level.latency_us + bytes / (level.gbps * level.efficiency * 1e3);
}

// Converts all amounts to picoseconds; a message's time goes to its send.
Step in_picoseconds(Step step, const Machine& machine, const CollectiveTime& collective_time) {
  for (schedules::RankStep& rank : step.of_rank) {
    for (Task& task : rank.tasks) {
      if (task.comm != schedules::Comm::none) {
        task.amount = collective_time(step.groups[static_cast<std::size_t>(task.peer)], task);
      } else if (schedules::is_send(task.op)) {
        task.amount = std::llround(message_us(machine, static_cast<double>(task.amount)) * kPsPerUs);
      } else if (schedules::is_recv(task.op)) {
        task.amount = 0;
      }
    }
  }
  return step;
}

}  // namespace

std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks) {
  return std::clamp(measured.cores / measured.threads, 1, ranks);
}

Simulation simulate_on_shared_cores(std::span<const Step> priced, const Machine& machine,
                                    const CollectiveTime& collective_time) {
  const Measured& measured = machine.measured;
  const Step& alone = priced.front();
  const auto slowdown = [&](std::int32_t rank, std::size_t index, const Concurrent& concurrent) {
    const auto task_in = [&](const Step& step) -> const Task& {
      return step.of_rank[static_cast<std::size_t>(rank)].tasks[index];
    };
    const double threads = static_cast<double>(concurrent.kernels) * measured.threads + concurrent.collectives;
    const double sharing = std::max(1.0, threads / measured.cores);
    const auto by_itself = static_cast<double>(task_in(alone).amount);
    if (task_in(alone).lane != Lane::compute || by_itself == 0) return sharing;
    const auto ranks = std::clamp<std::size_t>(static_cast<std::size_t>(concurrent.kernels), 1, priced.size());
    return static_cast<double>(task_in(priced[ranks - 1]).amount) / by_itself * sharing;
  };
  return play_contended(in_picoseconds(alone, machine, collective_time), lanes_beside(), slowdown);
}

}  // namespace lockstep::simulator
