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

constexpr double kPsPerUs = 1e6;

LanesBeside lanes_beside() {
  LanesBeside beside = {};
  for (const Lane lane : {Lane::gather, Lane::reduce, Lane::replicas}) beside[static_cast<std::size_t>(lane)] = true;
  return beside;
}

// From a rank to another: as it was measured, or by the innermost level.
double message_us(const Machine& machine, double bytes) {
  constexpr int kTwoRanks = 2;
  if (const auto* const measured = machine.measured.find("send_recv", kTwoRanks)) return measured_us(*measured, bytes);
  const NetworkLevel& level = machine.levels.front();
  return level.latency_us + bytes / (level.gbps * level.efficiency * 1e3);
}

// All amounts as picoseconds: a message's go to its send.
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

Simulation simulate_on_shared_cores(const Step& alone, const Step& concurrent_step, const Machine& machine,
                                    const CollectiveTime& collective_time) {
  const Measured& measured = machine.measured;
  const std::int32_t most = ranks_at_once(measured, alone.num_ranks());
  const auto slowdown = [&](std::int32_t rank, std::size_t index, const Concurrent& concurrent) {
    const auto at = [&](const Step& step) -> const Task& {
      return step.of_rank[static_cast<std::size_t>(rank)].tasks[index];
    };
    const double threads = static_cast<double>(concurrent.kernels) * measured.threads + concurrent.collectives;
    const double turns = std::max(1.0, threads / measured.cores);
    const auto by_itself = static_cast<double>(at(alone).amount);
    if (at(alone).lane != Lane::compute || most == 1 || by_itself == 0) return turns;
    const double together = static_cast<double>(at(concurrent_step).amount) / by_itself;
    const double part = static_cast<double>(std::min(concurrent.kernels, most) - 1) / (most - 1);
    return (1 + part * (together - 1)) * turns;
  };
  return play_contended(in_picoseconds(alone, machine, collective_time), lanes_beside(), slowdown);
}

}  // namespace lockstep::simulator
