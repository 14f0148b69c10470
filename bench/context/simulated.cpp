#include "bench/context/simulated.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>

#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/one_switch.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"

namespace lockstep::context_bench {
namespace {

constexpr double kPsPerUs = 1e6;
constexpr double kNoLimit = 1e9;  // GB/s

simulator::Machine machine_of(const transports::LinkSpec& link) {
  simulator::Machine machine;
  machine.levels = {
      {.name = "link", .ranks = 1 << 20, .gbps = link.gbps > 0 ? link.gbps : kNoLimit, .latency_us = link.latency_us}};
  return machine;
}

std::int64_t ps(double us) {
  return std::llround(us * kPsPerUs);
}

schedules::RankStep rank_step(const std::vector<Piece>& pieces, bool backward, const std::vector<double>& kernel_us) {
  schedules::RankWriter rank;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    schedules::Task task{.op = backward ? schedules::Op::backward : schedules::Op::forward};
    if (pieces[i].is_exchange) {
      const workload::Exchange& exchange = backward ? pieces[i].op->backward_exchange : pieces[i].op->forward_exchange;
      task.op = schedules::Op::layer_collective;
      task.lane = schedules::Lane::tensor;
      task.comm = exchange.comm;
      task.peer = 0;
      task.amount = static_cast<std::int64_t>(exchange.bytes);
    } else {
      task.amount = ps(kernel_us[i]);
    }
    const auto after = static_cast<std::uint32_t>(pieces[i].after);
    rank.add(task, std::span(&after, pieces[i].after < 0 ? 0 : 1));
  }
  return rank.take();
}

}  // namespace

double simulated_us(const workload::ContextLayer& layer, const std::vector<Piece>& pieces, bool backward,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link) {
  schedules::Group all{.kind = schedules::GroupKind::context,
                       .ranks = std::vector<std::int32_t>(static_cast<std::size_t>(layer.shape.ranks))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  schedules::Step step{.name = "attention", .groups = {all}};
  for (const std::vector<double>& of_rank : kernel_us) step.of_rank.push_back(rank_step(pieces, backward, of_rank));
  const simulator::Machine machine = machine_of(link);
  const std::vector<std::int64_t> members{layer.shape.ranks};
  const auto time_of = [&](const schedules::Group&, const schedules::Task& task) {
    return ps(best_collective(machine, task.comm, static_cast<double>(task.amount), members).time_us());
  };
  const simulator::OneSwitch nothing_sent(layer.shape.ranks, 0);
  return static_cast<double>(simulate(step, nothing_sent, time_of).makespan_ps) / kPsPerUs;
}

}  // namespace lockstep::context_bench
