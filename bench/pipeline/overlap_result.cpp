#include "bench/pipeline/overlap_result.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/pipeline/recurrence.h"
#include "bench/pipeline/result.h"
#include "core/statistics.h"
#include "schedules/step/count.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/one_switch.h"
#include "simulator/network/expand.h"

namespace lockstep::pipeline {
namespace {

using schedules::Comm;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;

double ms_of(std::int64_t ps) {
  return static_cast<double>(ps) / 1e9;
}

bool is_part_of(const Task& piece, const Task& whole) {
  const bool same = piece.lane == whole.lane && piece.stage == whole.stage && piece.part == whole.part &&
                    piece.microbatch == whole.microbatch && piece.comm == Comm::none;
  return same &&
         (piece.op == schedules::Op::send_chunk || piece.op == schedules::Op::recv_chunk || piece.op == whole.op);
}

// Converts messages back to collectives, each from the start of its first message to the end of its last.
StepTimeline timeline_of_wholes(const Step& step, const Step& expanded, const StepTimeline& pieces) {
  StepTimeline timeline;
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    auto& spans = timeline.emplace_back();
    std::size_t next = 0;
    for (const Task& task : step.of_rank[r].tasks) {
      const auto& of_rank = expanded.of_rank[r].tasks;
      schedules::TaskSpan span = pieces[r][next++];
      while (task.comm != Comm::none && next < of_rank.size() && is_part_of(of_rank[next], task)) {
        span.end_ps = std::max(span.end_ps, pieces[r][next++].end_ps);
      }
      spans.push_back(span);
    }
  }
  return timeline;
}

struct Simulated {
  double makespan_ms = 0;
  StepTimeline timeline;
};

// Collectives as their plans, message by message, over one port per rank.
Simulated simulate_step(const OverlapFlags& flags, const Step& step) {
  Step expanded = step;
  simulator::expand_collectives(expanded, [&](Comm comm, int ranks) { return plan_of(flags, comm, ranks); });
  const double ps_per_byte = flags.link.gbps > 0 ? 1e3 / flags.link.gbps : 0;
  const simulator::OneSwitch network(step.num_ranks(), static_cast<std::int64_t>(flags.link.latency_us * 1e6),
                                     {.ps_per_byte = ps_per_byte});
  const auto no_others = [](const auto& /*group*/, const auto& /*task*/) { return 0; };
  const simulator::Simulation simulation = simulator::simulate(expanded, network, no_others);
  return {ms_of(simulation.makespan_ps), timeline_of_wholes(step, expanded, simulation.timeline)};
}

// A ring all-reduce among n ranks: 2 (n-1) steps, each with the latency and 1/n of the bytes.
double ring_ms(const OverlapFlags& flags, int ranks, std::int64_t bytes) {
  const double steps = 2.0 * (ranks - 1);
  const double part_us = flags.link.gbps > 0 ? static_cast<double>(bytes) / ranks / (flags.link.gbps * 1e3) : 0;
  return steps * (flags.link.latency_us + part_us) / 1e3;
}

std::optional<double> recurrence_of(const OverlapFlags& flags, const OverlapCase& one) {
  if (one.zero_stage != 0 || flags.algorithm != "ring") return std::nullopt;
  const double computed_ms = flags.microbatches * flags.layers * (flags.forward_ms + flags.backward_ms);
  std::vector<BucketTimes> buckets;
  for (const auto& bucket : buckets_of(flags, one)) {
    const double after_ms = bucket.part * flags.backward_ms;  // earlier layers have their backward later
    buckets.push_back({computed_ms - after_ms, ring_ms(flags, one.replicas, bucket.bytes)});
  }
  return std::max(computed_ms, end_of_buckets_ms(buckets)) + flags.optimizer_ms;
}

double kernels_ms(const Step& step) {
  std::int64_t ps = 0;
  for (const Task& task : step.of_rank.front().tasks) ps += task.lane == schedules::Lane::compute ? task.amount : 0;
  return ms_of(ps);
}

void emulate_case(OverlapResult& result, const OverlapFlags& flags) {
  simulator::EmulationOptions options;
  options.link = flags.link;
  options.deadline = std::chrono::seconds(flags.timeout_s);
  options.plan_of = [&](Comm comm, int ranks) { return plan_of(flags, comm, ranks); };
  EmulatedRuns runs = emulate(result.step, options, flags.repeat);
  result.step_ms = core::median(runs.emulation.samples_ms);
  result.emulation = std::move(runs.emulation);
  result.emulation->simulated_timeline = std::exchange(result.timeline, std::move(runs.timeline));
}

}  // namespace

OverlapResult run_overlap(const OverlapFlags& flags, const OverlapCase& one) {
  OverlapResult result;
  result.step = overlap_step(flags, one);
  Simulated simulated = simulate_step(flags, result.step);
  result.step_ms = result.simulated_ms = simulated.makespan_ms;
  result.timeline = std::move(simulated.timeline);
  result.compute_ms = kernels_ms(result.step);
  result.communication_ms = simulate_step(flags, overlap_step(flags, one, false)).makespan_ms;
  result.closed_form_ms = recurrence_of(flags, one);
  if (flags.mode == Mode::emulated) emulate_case(result, flags);
  for (const auto& rank : schedules::breakdown_of(result.step, result.timeline)) {
    result.exposed_of_rank_ms.push_back(ms_of(rank.all_exposed_ps()));
  }
  for (const Task& task : result.step.of_rank.front().tasks) result.collectives += task.comm != Comm::none ? 1 : 0;
  const schedules::SentBytes sent = schedules::count_sent(result.step).front();
  for (const double bytes : sent.of_groups) result.sent_bytes += bytes;
  return result;
}

}  // namespace lockstep::pipeline
