// The prediction of a layout's step: its simulation on one machine, also on the shared cores of one host, its parts and
// its rates.
#include "simulator/predict/predict.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"
#include "simulator/engine/contended.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"
#include "simulator/network/nccl.h"
#include "simulator/network/topology.h"
#include "simulator/prices/prices.h"
#include "workload/build_step.h"
#include "workload/layout.h"

namespace lockstep::simulator {
namespace {

constexpr double kPsPerUs = 1e6;  // picoseconds per microsecond

using schedules::Lane;
using schedules::Step;
using schedules::Task;

LanesBeside lanes_with_thread() {
  LanesBeside own_thread = {};
  for (const Lane lane : {Lane::gather, Lane::reduce, Lane::replicas, Lane::copy})
    own_thread[static_cast<std::size_t>(lane)] = true;
  return own_thread;
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

// Largest number of ranks that can compute on cores of their own.
std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks) {
  return std::clamp(measured.cores / measured.threads, 1, ranks);
}

// Simulation of a step whose ranks share one host's cores, as this library's ranks do on the CPU (Machine::measured).
// `priced`: one step, with kernels in priced[n - 1] priced as if n ranks ran them at the same time, for n from 1 to
// ranks_at_once(). If more threads run than there are cores (kernels, and collectives while their bytes move), all get
// an equal share. Collectives over data-parallel ranks have threads of their own, as in the trainer.
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
  return play_contended(in_picoseconds(alone, machine, collective_time), lanes_with_thread(), slowdown);
}

constexpr double kPsPerSecond = 1e12;

std::vector<std::int64_t> places_of_pipeline(const workload::Layout& layout) {
  std::vector<std::int64_t> places;
  for (std::int64_t r = 0; r < layout.pp; ++r) places.push_back(r * stride_of(layout, workload::Axis::pp));
  return places;
}

std::vector<std::int64_t> all_places(const workload::Layout& layout) {
  std::vector<std::int64_t> places;
  for (std::int64_t r = 0; r < layout.ranks(); ++r) places.push_back(r);
  return places;
}

// Converts a list of members to evenly spaced runs.
std::vector<workload::RankSet> runs_of(const std::vector<std::int32_t>& ranks) {
  std::vector<workload::RankSet> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    const std::size_t next = std::min(i + 1, ranks.size() - 1);
    const std::int64_t stride = std::max(1, ranks[next] - ranks[i]);
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == stride) ++end;
    runs.push_back({ranks[i], stride, static_cast<std::int64_t>(end - i)});
    i = end;
  }
  return runs;
}

// For each group of a step, the number of its real members that one switch of each level joins.
std::vector<std::vector<std::int64_t>> members_of_groups(const schedules::Step& step, const workload::Layout& layout,
                                                         const Machine& machine, std::span<const std::int64_t> places) {
  std::vector<std::vector<std::int64_t>> all;
  for (const schedules::Group& group : step.groups) {
    const std::int64_t first = places[static_cast<std::size_t>(group.ranks.front())];
    const bool is_whole = group.members == 0;
    all.push_back(
        members_per_level(machine, is_whole ? runs_of(group.ranks) : workload::members_of(layout, group, first)));
  }
  return all;
}

// Bytes sent by a rank that leave its switch of a level.
double sent_beyond(const schedules::Step& step, std::size_t rank, std::size_t level, const Machine& machine,
                   std::span<const std::int64_t> places, std::span<const std::vector<std::int64_t>> members) {
  const auto switch_of = [&](std::size_t r) { return places[r] / machine.levels[level].ranks; };
  double bytes = 0;
  for (const schedules::Task& task : step.of_rank[rank].tasks) {
    const auto peer = static_cast<std::size_t>(std::max(task.peer, 0));
    if (schedules::is_send(task.op)) {
      if (switch_of(peer) != switch_of(rank)) bytes += static_cast<double>(task.amount);
    } else if (task.comm != schedules::Comm::none) {
      bytes += schedules::beyond_bytes(task.comm, task.amount, step.groups[peer].size(), members[peer][level]);
    }
  }
  return bytes;
}

// A rank's collectives, by descending total time.
std::vector<TakenCollectives> collectives_of(const schedules::Step& step, std::size_t rank, const Machine& machine,
                                             std::span<const std::vector<std::int64_t>> members, bool zero_cta) {
  std::vector<TakenCollectives> taken;
  std::vector<std::size_t> group_of;  // the first group of each
  for (const schedules::Task& task : step.of_rank[rank].tasks) {
    if (task.comm == schedules::Comm::none) continue;
    const auto group = static_cast<std::size_t>(task.peer);
    const auto is_alike = [&](std::size_t i) {
      const TakenCollectives& collectives = taken[i];
      return collectives.group == step.groups[group].kind && collectives.ranks == step.groups[group].size() &&
             collectives.comm == task.comm && collectives.bytes == task.amount &&
             members[group_of[i]] == members[group];
    };
    std::size_t alike = 0;
    while (alike < taken.size() && !is_alike(alike)) ++alike;
    if (alike < taken.size()) {
      ++taken[alike].count;
      continue;
    }
    const auto each = best_collective(machine, task.comm, static_cast<double>(task.amount), members[group], zero_cta);
    taken.push_back({step.groups[group].kind, step.groups[group].size(), task.comm, task.amount, 1, each});
    group_of.push_back(group);
  }
  std::stable_sort(taken.begin(), taken.end(),
                   [](const TakenCollectives& a, const TakenCollectives& b) { return a.all_us() > b.all_us(); });
  return taken;
}

std::size_t busiest_of(const std::vector<schedules::Breakdown>& parts) {
  const auto most = std::max_element(parts.begin(), parts.end(),
                                     [](const auto& a, const auto& b) { return a.compute_ps() < b.compute_ps(); });
  return static_cast<std::size_t>(most - parts.begin());
}

void take_time(Replay& replay, const schedules::Step& step, const Simulation& simulation, const Machine& machine,
               std::span<const std::vector<std::int64_t>> members, bool zero_cta,
               const schedules::BlockingLanes& blocking = {}) {
  replay.step_s = static_cast<double>(simulation.makespan_ps) / kPsPerSecond;
  replay.parts = schedules::breakdown_of(step, simulation.timeline, blocking);
  replay.busiest = busiest_of(replay.parts);
  replay.collectives = collectives_of(step, replay.busiest, machine, members, zero_cta);
}

// `priced`: the step; if ranks share cores, one per number of ranks (simulate_on_shared_cores()).
Simulation run(std::span<const schedules::Step> priced, const workload::Layout& layout, const Machine& machine,
               std::vector<std::int64_t> places, std::span<const std::vector<std::int64_t>> members) {
  const schedules::Step& step = priced.front();
  const MachineNetwork network(machine, std::move(places));
  const auto collective_time = [&](const schedules::Group& group, const schedules::Task& task) {
    const auto best = best_collective(machine, task.comm, static_cast<double>(task.amount),
                                      members[static_cast<std::size_t>(task.peer)], layout.zero_cta);
    return static_cast<std::int64_t>(std::llround(best.time_us() * kPsPerUs)) + list_ps(machine.host, layout, group);
  };
  if (machine.measured.cores > 0) return simulate_on_shared_cores(priced, machine, collective_time);
  const auto takes_none = [&](const schedules::Task& task) {
    return layout.zero_cta && copy_engines_can(machine, task.comm, members[static_cast<std::size_t>(task.peer)]);
  };
  return simulate(step, network, collective_time, machine.taken_by_collectives(), takes_none);
}

// The bubbles of forward and backward, without what follows (remaining reductions, the optimizer). A rank's work is its
// kernels and the collectives inside layers that they wait for; updates between kernels of the backward are work, too.
schedules::Bubbles bubbles_of_step(const schedules::Step& step, const schedules::StepTimeline& timeline,
                                   const std::vector<schedules::Breakdown>& parts) {
  schedules::Spans spans;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    std::int64_t first = -1;
    std::int64_t last = 0;
    std::int64_t updates_ps = 0;  // updates since the last other kernel
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const schedules::Task& task = step.of_rank[r].tasks[i];
      if (task.lane != schedules::Lane::compute) continue;
      updates_ps =
          task.op == schedules::Op::optimizer ? updates_ps + timeline[r][i].end_ps - timeline[r][i].start_ps : 0;
      if (task.op == schedules::Op::optimizer) continue;
      if (first < 0) first = timeline[r][i].start_ps;
      last = std::max(last, timeline[r][i].end_ps);
    }
    const std::int64_t tensor_ps = parts[r].exposed_ps[static_cast<std::size_t>(schedules::Lane::tensor)];
    const std::int64_t work_ps = parts[r].compute_ps() - updates_ps + tensor_ps;
    spans.of_rank.push_back(static_cast<double>(last - first));
    spans.own = std::max(spans.own, spans.of_rank.back());
    spans.makespan = std::max(spans.makespan, static_cast<double>(last));
    spans.work = std::max(spans.work, static_cast<double>(work_ps));
  }
  return schedules::bubbles_of(spans);
}

// The activations that each stage of a schedule keeps, per slice; per part if parts are offloaded separately.
std::vector<std::vector<schedules::ActivationBytes>> activations_of_stages(const workload::Model& model,
                                                                           const workload::Layout& layout,
                                                                           const schedules::Schedule& schedule) {
  std::vector<std::vector<schedules::ActivationBytes>> all;
  for (std::int32_t i = 0; i < schedule.num_stages() * schedule.slices(); ++i) {
    const std::int32_t stage = i / schedule.slices() % schedule.stages_per_pipe;
    const workload::StageSlice slice = slice_of(model, layout, schedule.stages_per_pipe, stage, i % schedule.slices());
    const bool in_parts = layout.offload.activations != workload::Offload::none;
    std::vector<schedules::ActivationBytes>& of_stage = all.emplace_back();
    for (const workload::StageActivations& part :
         in_parts ? part_activations_of(model, layout, slice) : std::vector{activations_of(model, layout, slice)}) {
      of_stage.push_back({.until_input_gradient = std::llround(part.kept - part.later),
                          .until_weight_gradient = std::llround(part.later)});
    }
  }
  return all;
}

void add_rates(Prediction& prediction, const workload::Model& model, const workload::Layout& layout,
               const Machine& machine) {
  const double tokens = static_cast<double>(layout.global_batch() * model.sequence);
  prediction.model_flops = training_flops(model, tokens, false);
  prediction.hardware_flops = training_flops(model, tokens, layout.recompute == workload::Recompute::full);
  if (layout.recompute == workload::Recompute::selective)
    prediction.hardware_flops += tokens * token_flops(model).attention;
  const bool shares = machine.measured.cores > 0;
  const double devices = shares ? ranks_at_once(machine.measured, layout.ranks()) : layout.ranks();
  const double peak = machine.device.matrix_tflops * 1e12 * devices;
  prediction.mfu = prediction.model_flops / (peak * prediction.step_s);
  prediction.hfu = prediction.hardware_flops / (peak * prediction.step_s);
  prediction.tokens_per_s = tokens / prediction.step_s;
}

// A machine that is one torus has no more devices than that.
void refuse_beyond_torus(const Machine& machine, std::int64_t ranks) {
  if (machine.levels.size() != 1 || !machine.levels.front().torus || ranks <= machine.levels.front().ranks) return;
  throw core::usage_error("machine " + machine.name + ": is a torus of " +
                          std::to_string(machine.levels.front().ranks) + " devices, and the layout has " +
                          std::to_string(ranks) + " ranks; allowed: at most as many as devices");
}

// Copies to and from the device: concurrent over the host link, sharing the bandwidth for files.
std::int64_t copy_ps(const Machine& machine, workload::Offload place, double to_device, double from_device) {
  constexpr double kPsPerNs = 1e3;
  if (place == workload::Offload::host) {
    return std::llround(kPsPerNs * std::max(to_device, from_device) / machine.host_gbps);
  }
  if (machine.nvme_gbps == 0) {
    throw core::usage_error("layout: offload names file, and machine '" + machine.name +
                            "' has no nvme_gbps; allowed: host in place of file, or a machine file with it");
  }
  return std::llround(kPsPerNs * (to_device + from_device) / machine.nvme_gbps);
}

}  // namespace

workload::Pricing pricing_of(const workload::Model& model, const workload::Layout& layout,
                             const schedules::Schedule& schedule, const Machine& machine, Detail detail,
                             std::int32_t copies) {
  workload::Pricing pricing;
  if (machine.measured.cores == 0) pricing.issue = issue_times_of(machine.host, layout);
  pricing.kernel = [&machine, copies](const workload::KernelCall& call) { return kernel_ps(machine, call, copies); };
  pricing.copy = [&machine](workload::Offload place, double to_device, double from_device) {
    return copy_ps(machine, place, to_device, from_device);
  };
  pricing.host = [&machine](double bytes) {
    constexpr double kPsPerNs = 1e3;
    const double gbps = machine.host_memory_gbps > 0 ? machine.host_memory_gbps : machine.host_gbps;
    return static_cast<std::int64_t>(std::llround(kPsPerNs * bytes / gbps));
  };
  // If ranks share cores, a kernel's time depends on concurrent work, so each kernel stays a separate task.
  if (detail == Detail::pieces && machine.measured.cores == 0) pricing.simplify = merge_kernels;
  if (detail == Detail::folded) {
    pricing.simplify = [price = price_in(model, layout, schedule, machine)](const schedules::StageRecipe& recipe) {
      return fold_pieces(recipe, price);
    };
  }
  return pricing;
}

workload::Layout balanced_on(const Machine& machine, const workload::Model& model, const workload::Layout& layout) {
  return balanced(model, layout, [&](const workload::KernelCall& call) { return kernel_ps(machine, call, 1); });
}

double needed_bytes(const workload::Layout& layout, const Machine& machine,
                    const std::vector<workload::MemoryBytes>& memory) {
  if (machine.measured.cores == 0) return memory[worst_of(memory)].total();
  const std::int32_t place_ranks = layout.ranks() / layout.pp;
  double bytes = 0;
  for (const workload::MemoryBytes& of_place : memory) bytes += of_place.total() * place_ranks;
  return bytes;
}

Prediction predict(const workload::Model& model, const workload::Layout& asked, const Machine& machine,
                   const PredictOptions& options) {
  const workload::Layout layout = balanced_on(machine, model, asked);
  if (options.collectives == Collectives::plans && machine.measured.cores > 0) {
    throw core::usage_error("collectives as plans on " + machine.name +
                            ", where they were measured; allowed: a machine without `measured`");
  }
  if (options.collectives == Collectives::plans && options.extent != Extent::all_ranks) {
    throw core::usage_error("collectives as plans need every rank; allowed: with all ranks simulated");
  }
  const std::string reason = why_invalid(model, layout);
  if (!reason.empty()) throw core::usage_error(model.name + ", " + text_of(layout) + ": " + reason);
  refuse_beyond_torus(machine, layout.ranks());
  if (layout.fp8 != workload::Fp8::none && machine.device.fp8_tflops == 0 && machine.measured.cores == 0) {
    throw core::usage_error("machine " + machine.name +
                            ": has no fp8_tflops; allowed: fp8=none, or a machine whose device has 8-bit floats");
  }
  if (layout.zero_cta && (!machine.nccl || machine.nccl->inside != NodeLink::nvlink)) {
    throw core::usage_error("layout: zero_cta is yes, and machine " + machine.name +
                            " has no NCCL over NVLink, whose copies take no thread blocks; allowed: no, or a machine "
                            "with it");
  }
  const schedules::Schedule schedule = schedule_of(layout);
  const bool shares_cores = machine.measured.cores > 0;
  const bool all_ranks = shares_cores || options.extent == Extent::all_ranks;
  const auto step_of = [&](std::int32_t copies) {
    const auto pricing = pricing_of(model, layout, schedule, machine, options.detail, copies);
    const auto works = works_of(model, layout, schedule, pricing);
    const std::vector<workload::StagePlan> plans = plans_of(model, layout, schedule);
    schedules::Step folded = build_step(model, layout, schedule, plans, works, pricing);
    if (!shares_cores) add_host(folded, layout, plans, machine.host);
    compress_collectives(folded, layout, machine);
    return all_ranks ? unfolded(folded, layout) : folded;
  };
  std::vector<schedules::Step> priced;
  const std::int32_t most = shares_cores ? ranks_at_once(machine.measured, layout.ranks()) : 1;
  for (std::int32_t copies = 1; copies <= most; ++copies) priced.push_back(step_of(copies));
  schedules::Step& step = priced.front();

  Prediction prediction;
  std::vector<std::int64_t> places = all_ranks ? all_places(layout) : places_of_pipeline(layout);
  prediction.sent = schedules::count_sent(step);
  const std::vector<std::vector<std::int64_t>> members = members_of_groups(step, layout, machine, places);
  for (std::size_t rank = 0; rank < step.of_rank.size(); ++rank) {
    std::vector<double>& of_rank = prediction.sent_beyond.emplace_back();
    for (std::size_t level = 0; level + 1 < machine.levels.size(); ++level) {
      of_rank.push_back(sent_beyond(step, rank, level, machine, places, members));
    }
  }
  if (options.collectives == Collectives::plans) expand_collectives(step, ring_plan);
  const auto begin = std::chrono::steady_clock::now();
  Simulation simulation = run(priced, layout, machine, std::move(places), members);
  prediction.engine_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  take_time(prediction, step, simulation, machine, members, layout.zero_cta);
  prediction.events = simulation.events;
  prediction.bubbles = bubbles_of_step(step, simulation.timeline, prediction.parts);
  prediction.memory = memory_of(model, layout, schedule);
  prediction.fullest = worst_of(prediction.memory);
  prediction.needed_bytes = needed_bytes(layout, machine, prediction.memory);
  prediction.fits = prediction.needed_bytes <= static_cast<double>(machine.device.memory_bytes);
  add_rates(prediction, model, layout, machine);
  if (options.compare_zero_cta && layout.zero_cta) {
    workload::Layout without = layout;
    without.zero_cta = false;
    const PredictOptions alike{options.detail, options.extent, options.collectives};
    prediction.without_zero_cta_s = predict(model, without, machine, alike).step_s;
  }
  if (options.keep_timeline) {
    prediction.memory_over_time =
        schedules::memory_over_time(step, simulation.timeline, activations_of_stages(model, layout, schedule));
    prediction.step = std::move(step);
    prediction.timeline = std::move(simulation.timeline);
  }
  return prediction;
}

namespace {

void refuse_shared_cores(const Machine& machine) {
  if (machine.measured.cores == 0) return;
  throw core::usage_error("machine " + machine.name +
                          ": has ranks that share cores; allowed here: a machine without `measured`");
}

}  // namespace

Simulation simulate_step(const schedules::Step& step, const workload::Layout& layout, const Machine& machine) {
  refuse_shared_cores(machine);
  const std::vector<std::int64_t> places = places_of_pipeline(layout);
  const std::vector<std::vector<std::int64_t>> members = members_of_groups(step, layout, machine, places);
  return run(std::span(&step, 1), layout, machine, places, members);
}

Replay replay(const schedules::Step& step, const Machine& machine, const schedules::BlockingLanes& blocking) {
  refuse_shared_cores(machine);
  refuse_beyond_torus(machine, step.num_ranks());
  const workload::Layout layout;  // does not describe groups that list all their members
  std::vector<std::int64_t> places(step.of_rank.size());
  std::iota(places.begin(), places.end(), std::int64_t{0});
  const auto members = members_of_groups(step, layout, machine, places);
  Simulation simulation = run(std::span(&step, 1), layout, machine, places, members);
  Replay replay;
  take_time(replay, step, simulation, machine, members, layout.zero_cta, blocking);
  replay.timeline = std::move(simulation.timeline);
  return replay;
}

}  // namespace lockstep::simulator
