#include "bench/pipeline/result.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "bench/pipeline/filled.h"
#include "bench/pipeline/real.h"
#include "core/statistics.h"
#include "schedules/own_span_bound.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/lower.h"
#include "schedules/transport_check.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/one_switch.h"

namespace lockstep::pipeline {
namespace {

using schedules::Step;
using schedules::StepTimeline;
using schedules::Waiting;

constexpr double kEvictionGbps = 1000;  // bandwidth of kEvictionLink

// All stages are equal: a chunk is an equal part of its rank's share.
Step lowered(const Case& one, const PipelineFlags& flags) {
  std::vector<schedules::StageCosts> costs;
  for (std::int32_t stage = 0; stage < one.schedule.num_stages(); ++stage) {
    for (std::int32_t slice = 0; slice < one.schedule.slices(); ++slice) {
      const auto ps = [&](schedules::Op op) {
        return ps_of(
            schedules::time_of({op, stage, slice}, flags.times_ms, one.schedule.chunks(), one.schedule.slice_tokens));
      };
      costs.push_back({.forward_ps = ps(schedules::Op::forward),
                       .input_gradient_ps = ps(schedules::Op::input_gradient),
                       .weight_gradient_ps = ps(schedules::Op::weight_gradient),
                       .message_bytes = 0,
                       .kept_bytes = ps_of(flags.evict_ms)});
    }
  }
  return schedules::lower(one.schedule, costs);
}

// The timeline in the form of count.h: one span per action, in ms.
schedules::Timeline timeline_of_actions(const Step& step, const StepTimeline& timeline) {
  schedules::Timeline of_actions;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::vector<schedules::Span>& spans = of_actions.emplace_back();
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      if (!schedules::is_compute(step.of_rank[r].tasks[i].op)) continue;
      spans.push_back({static_cast<double>(timeline[r][i].start_ps) / kPsPerMs,
                       static_cast<double>(timeline[r][i].end_ps) / kPsPerMs});
    }
  }
  return of_actions;
}

Verdicts verdicts_of(const schedules::Schedule& messages) {
  Verdicts verdicts;
  const auto add = [&](const std::string& name, const schedules::ChannelRules& rules) {
    std::string hang = schedules::hang_of(messages, rules);
    verdicts.emplace_back(name, hang.empty() ? std::nullopt : std::optional(std::move(hang)));
  };
  add("blocking", {Waiting::blocking, 0});
  add("batched", {Waiting::batched, 0});
  for (const int slots : {1, 2, 4}) add("buffered_" + std::to_string(slots), {Waiting::buffered, slots});
  return verdicts;
}

void add_spans(Result& result, const Case& one, const PipelineFlags& flags) {
  result.spans = schedules::spans_of(one.schedule, flags.times_ms, timeline_of_actions(result.step, result.timeline));
  const double behind_ms =
      result.filled ? flags.filler.precondition : 0;  // time for which the rank's list has no action
  result.spans.work += behind_ms;
  result.spans.own += behind_ms;
  result.spans.makespan += behind_ms;
  for (double& own : result.spans.of_rank) own += behind_ms;
  if (result.emulation) result.spans.makespan = core::median(result.emulation->samples_ms);  // as measured by threads
  result.bubbles = schedules::bubbles_of(result.spans);
  for (const schedules::Breakdown& rank : schedules::breakdown_of(result.step, result.timeline)) {
    result.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / kPsPerMs);
  }
}

// The row's step is the first of a refresh, which has most of the work.
void fill_case(Result& result, const Case& one, const PipelineFlags& flags) {
  result.filled = fill(one, flags, result.step);
  result.step = result.filled->steps.front();
  result.timeline = result.filled->timelines.front();
  result.simulated_ms = result.filled->makespan_without_ms;
}

void emulate_case(Result& result, const PipelineFlags& flags) {
  simulator::EmulationOptions options;
  options.link.latency_us = 1e3 * flags.times_ms.message;
  if (flags.evict_ms > 0) options.link.gbps = kEvictionGbps;
  options.deadline = std::chrono::seconds(flags.timeout_s);
  if (result.filled) {
    const EmulatedRuns without = emulate(result.filled->without, options, flags.repeat);
    result.filled->makespan_without_ms = core::median(without.emulation.samples_ms);
  }
  EmulatedRuns runs = emulate(result.step, options, flags.repeat);
  result.emulation = std::move(runs.emulation);
  result.emulation->simulated_timeline = std::exchange(result.timeline, std::move(runs.timeline));
}

void run_real_case(Result& result, const Case& one, const PipelineFlags& flags) {
  EmulatedRuns runs = run_real(one.schedule, result.step, flags);
  result.emulation = std::move(runs.emulation);
  result.emulation->simulated_timeline = std::exchange(result.timeline, std::move(runs.timeline));
}

double most_held(const Result& result) {
  double most = 0;
  for (const auto& rank : result.counts) most = std::max(most, rank.peak.until_weight_gradient);
  return most;
}

// The bound for the larger of the memory limit (if given) and the schedule's own peak.
std::optional<double> bound_ms(const Case& one, const Result& result, const PipelineFlags& flags) {
  if (one.schedule.chunks() != 1 || one.schedule.num_pipes() != 1) return std::nullopt;
  if (one.schedule.slices() != 1 || evicts_activations(one.schedule))
    return std::nullopt;  // the bound assumes whole microbatches on the rank that makes them
  const double held = most_held(result);
  const double allowed = one.memory_limit ? *one.memory_limit : flags.memory_limit.value_or(held);
  return schedules::least_own_span(one.shape, flags.times_ms, {std::max(held, allowed), flags.w_share()});
}

}  // namespace

Result run_case(const Case& one, const PipelineFlags& flags) {
  Result result;
  result.step = lowered(one, flags);
  const simulator::OneSwitch network(one.schedule.num_ranks(), ps_of(flags.times_ms.message), kEvictionLink);
  simulator::Simulation simulation =
      simulator::simulate(result.step, network, [](const auto& /*group*/, const auto& /*task*/) { return 0; });
  result.simulated_ms = static_cast<double>(simulation.makespan_ps) / kPsPerMs;
  result.timeline = std::move(simulation.timeline);
  if (flags.filler.given()) fill_case(result, one, flags);
  if (flags.mode == Mode::emulated) emulate_case(result, flags);
  if (flags.mode == Mode::real) run_real_case(result, one, flags);
  add_spans(result, one, flags);
  result.counts = schedules::count_ranks(one.schedule, flags.w_share());
  result.bound_ms = bound_ms(one, result, flags);
  result.ordering = schedules::count_ordering(one.schedule);
  result.hangs = verdicts_of(one.messages);
  if (one.entry != nullptr && flags.times_ms.message == 0 && flags.filler.precondition == 0 &&
      (flags.evict_ms == 0 || !evicts_activations(one.schedule))) {
    result.closed_form = one.entry->closed_form(one.shape, flags.times_ms);
  }
  return result;
}

bool is_over_memory(const Result& result, const PipelineFlags& flags) {
  return flags.memory_limit && most_held(result) > *flags.memory_limit + 1e-9;
}

EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat) {
  std::vector<simulator::EmulatedRun> runs;
  EmulatedRuns result;
  for (int i = 0; i < repeat; ++i) {
    const simulator::EmulatedRun& run = runs.emplace_back(simulator::run_emulated(step, options));
    result.emulation.samples_ms.push_back(static_cast<double>(run.makespan_ns) / 1e6);
    result.emulation.late_us = std::max(result.emulation.late_us, static_cast<double>(run.late_ns) / 1e3);
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.makespan_ns < b.makespan_ns; });
  result.timeline = std::move(runs[runs.size() / 2].timeline);
  return result;
}

}  // namespace lockstep::pipeline
