#include "bench/pipeline_perf/cases.h"
#include "bench/program/run_records.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "bench/pipeline_perf/output.h"
#include "core/error.h"
#include "core/statistics.h"
#include "schedules/generators/zero_bubble.h"
#include "schedules/passes/passes.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"

namespace lockstep::pipeline {
namespace {

using schedules::FillerItem;
using schedules::Op;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Waiting;

struct Change {
  std::int64_t time_ps = 0;
  std::int64_t by = 0;  // change, in stages of a microbatch, or in tokens of a slice
};

// Received activations count from the start of their task, sent ones until its end.
std::int64_t change_until_b(Op op) {
  switch (op) {
    case Op::forward:
    case Op::hold:
    case Op::fetch:
      return 1;
    case Op::backward:
    case Op::input_gradient:
    case Op::evict:
    case Op::yield:
      return -1;
    default:
      return 0;
  }
}

// Frees go before takes at the same time.
std::vector<core::MemoryPoint> points_of(std::vector<Change> changes, double unit) {
  std::sort(changes.begin(), changes.end(),
            [](const auto& a, const auto& b) { return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.by < b.by; });
  std::vector<core::MemoryPoint> points{{0, 0}};
  std::int64_t held = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    held += changes[i].by;
    const bool is_last_of_time = i + 1 == changes.size() || changes[i + 1].time_ps != changes[i].time_ps;
    if (!is_last_of_time) continue;
    const double time_ms = static_cast<double>(changes[i].time_ps) / 1e9;
    if (time_ms == points.back().time_ms) {
      points.back().value = static_cast<double>(held) * unit;
    } else if (static_cast<double>(held) * unit != points.back().value) {
      points.push_back({time_ms, static_cast<double>(held) * unit});
    }
  }
  return points;
}

}  // namespace

core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share) {
  core::MemoryRecord record{"microbatch activations", {}};
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::vector<Change> until_b;
    std::vector<Change> until_w;
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const auto& task = step.of_rank[r].tasks[i];
      const Op op = task.op;
      const auto& span = timeline[r][i];
      const std::int64_t tokens = schedules::tokens_of(schedule, task.microbatch);
      const std::int64_t change = change_until_b(op);
      if (change != 0) until_b.push_back({change > 0 ? span.start_ps : span.end_ps, change * tokens});
      if (op == Op::input_gradient) until_w.push_back({span.end_ps, tokens});
      if (op == Op::weight_gradient) until_w.push_back({span.end_ps, -tokens});
    }
    const double unit = 1 / schedules::unit_of(schedule);
    record.of_rank.push_back(
        {{"until_b", points_of(std::move(until_b), unit)}, {"until_w", points_of(std::move(until_w), unit * w_share)}});
  }
  return record;
}

namespace {

constexpr double kEvictionGbps = 1000;  // bandwidth of kEvictionLink

// All stages are equal: each chunk is the same fraction of its rank's share.
Step lowered(const Case& bench_case, const PipelineFlags& flags) {
  std::vector<schedules::StageCosts> costs;
  for (std::int32_t stage = 0; stage < bench_case.schedule.num_stages(); ++stage) {
    for (std::int32_t slice = 0; slice < bench_case.schedule.slices(); ++slice) {
      const auto ps = [&](schedules::Op op) {
        return ps_of(schedules::time_of({op, stage, slice}, flags.times_ms, bench_case.schedule.chunks(),
                                        bench_case.schedule.slice_tokens));
      };
      costs.push_back({.forward_ps = ps(schedules::Op::forward),
                       .input_gradient_ps = ps(schedules::Op::input_gradient),
                       .weight_gradient_ps = ps(schedules::Op::weight_gradient),
                       .message_bytes = 0,
                       .kept_bytes = ps_of(flags.evict_ms)});
    }
  }
  return schedules::lower(bench_case.schedule, costs);
}

// The timeline in the form of play.h: one span per action, in ms.
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

void add_spans(Result& result, const Case& bench_case, const PipelineFlags& flags) {
  result.spans =
      schedules::spans_of(bench_case.schedule, flags.times_ms, timeline_of_actions(result.step, result.timeline));
  const double behind_ms =
      result.filled ? flags.filler.precondition : 0;  // time for which the rank's list has no action
  result.spans.work += behind_ms;
  result.spans.own += behind_ms;
  result.spans.makespan += behind_ms;
  for (double& own : result.spans.of_rank) own += behind_ms;
  if (result.emulation) result.spans.makespan = core::median(result.emulation->samples_ms);  // as measured by threads
  result.bubbles = schedules::bubbles_of(result.spans);
}

// The row's step is the first of a refresh, which has most of the work.
void fill_case(Result& result, const Case& bench_case, const PipelineFlags& flags) {
  result.filled = fill(bench_case, flags, result.step);
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
  add_runs(emulate(result.step, options, flags.repeat), result);
}

double most_held(const Result& result) {
  double most = 0;
  for (const auto& rank : result.counts) most = std::max(most, rank.peak.until_weight_gradient);
  return most;
}

// The bound for the larger of the memory limit (if given) and the schedule's own peak.
std::optional<double> bound_ms(const Case& bench_case, const Result& result, const PipelineFlags& flags) {
  if (bench_case.schedule.chunks() != 1 || bench_case.schedule.num_pipes() != 1) return std::nullopt;
  if (bench_case.schedule.slices() != 1 || evicts_activations(bench_case.schedule))
    return std::nullopt;  // the bound assumes whole microbatches on the rank that makes them
  const double held = most_held(result);
  const double allowed = bench_case.memory_limit ? *bench_case.memory_limit : flags.memory_limit.value_or(held);
  return schedules::least_own_span(bench_case.shape, flags.times_ms, {std::max(held, allowed), flags.w_share()});
}

}  // namespace

Result run_case(const Case& bench_case, const PipelineFlags& flags) {
  Result result;
  result.step = lowered(bench_case, flags);
  const simulator::OneSwitch network(bench_case.schedule.num_ranks(), ps_of(flags.times_ms.message), kEvictionLink);
  simulator::Simulation simulation =
      simulator::simulate(result.step, network, [](const auto& /*group*/, const auto& /*task*/) { return 0; });
  result.simulated_ms = static_cast<double>(simulation.makespan_ps) / kPsPerMs;
  result.timeline = std::move(simulation.timeline);
  if (flags.filler.given()) fill_case(result, bench_case, flags);
  if (flags.mode == Mode::emulated) emulate_case(result, flags);
  if (flags.mode == Mode::real) add_runs(run_real(bench_case.schedule, result.step, flags), result);
  add_spans(result, bench_case, flags);
  result.counts = schedules::count_ranks(bench_case.schedule, flags.w_share());
  result.bound_ms = bound_ms(bench_case, result, flags);
  result.ordering = schedules::count_ordering(bench_case.schedule);
  result.hangs = verdicts_of(bench_case.messages);
  if (bench_case.entry != nullptr && flags.times_ms.message == 0 && flags.filler.precondition == 0 &&
      (flags.evict_ms == 0 || !evicts_activations(bench_case.schedule))) {
    result.closed_form = bench_case.entry->closed_form(bench_case.shape, flags.times_ms);
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

void add_runs(EmulatedRuns runs, TimedStep& timed) {
  timed.emulation = std::move(runs.emulation);
  timed.emulation->simulated_timeline = std::exchange(timed.timeline, std::move(runs.timeline));
}

namespace {

// Number of layers of a stage, which is a chunk of its rank's share.
std::int32_t layers_of_stage(const Case& bench_case, const FillerWork& work) {
  const std::int32_t chunks = bench_case.schedule.chunks();
  if (work.layers % chunks == 0) return work.layers / chunks;
  throw core::usage_error("--fill: layers is " + std::to_string(work.layers) + ", and schedule " + bench_case.name +
                          " has " + std::to_string(chunks) + " chunks per rank; allowed: multiples of the chunks");
}

std::vector<std::vector<FillerItem>> items_of(const Case& bench_case, const FillerWork& work, const Step& step) {
  const std::int32_t layers = layers_of_stage(bench_case, work);
  const auto of_layer = [&](double ms) { return ps_of(ms / bench_case.schedule.chunks() / layers); };
  std::vector<schedules::SecondOrderMatrix> of_stage;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    of_stage.push_back({.part = layer,
                        .input_curvature_ps = of_layer(work.input_curvature),
                        .output_curvature_ps = of_layer(work.output_curvature),
                        .input_inversion_ps = of_layer(work.inversion / 2),
                        .output_inversion_ps = of_layer(work.inversion / 2)});
  }
  auto items = schedules::second_order_items(step, std::vector<std::vector<schedules::SecondOrderMatrix>>(
                                                       static_cast<std::size_t>(step.num_stages()), of_stage));
  for (std::vector<FillerItem>& of_rank : items) {
    for (std::int32_t kernel = 0; work.work > 0 && kernel < work.layers; ++kernel) {
      of_rank.push_back(
          {.task = {.op = schedules::Op::filler, .part = kernel, .amount = ps_of(work.work / work.layers)}});
    }
  }
  return items;
}

simulator::Simulation simulated(const Step& step, const schedules::Times& times_ms) {
  const simulator::OneSwitch network(step.num_ranks(), ps_of(times_ms.message), kEvictionLink);
  return simulator::simulate(step, network, [](const auto& /*group*/, const auto& /*task*/) { return 0; });
}

// Adds the work that every step does after its gradients.
void add_precondition(Step& step, const FillerWork& work) {
  if (work.precondition == 0) return;
  const std::vector<std::int64_t> ps_of_rank(step.of_rank.size(), ps_of(work.precondition));
  schedules::add_optimizer(step, ps_of_rank, schedules::Barrier::none);
}

}  // namespace

Filled fill(const Case& bench_case, const PipelineFlags& flags, const Step& plain) {
  Step without = plain;
  add_precondition(without, flags.filler);
  const auto simulate = [&](const Step& step) { return simulated(step, flags.times_ms); };
  Filled filled{simulator::filled_steps(without, items_of(bench_case, flags.filler, plain), simulate), without};
  filled.makespan_without_ms = static_cast<double>(filled.makespan_ps) / kPsPerMs;
  filled.utilization_without = simulator::utilization_of(plain, static_cast<double>(simulate(plain).makespan_ps));
  return filled;
}

core::TimelineRecord timeline_record(const Filled& filled) {
  core::TimelineRecord all;
  for (std::size_t s = 0; s < filled.steps.size(); ++s) {
    core::TimelineRecord record = program::timeline_record(filled.steps[s], filled.timelines[s]);
    all.ranks.resize(record.ranks.size());
    for (std::size_t r = 0; r < record.ranks.size(); ++r) {
      for (auto& task : record.ranks[r]) {
        task.start += static_cast<double>(s) * filled.makespan_without_ms;
        task.end += static_cast<double>(s) * filled.makespan_without_ms;
        all.ranks[r].push_back(std::move(task));
      }
    }
  }
  return all;
}

}  // namespace lockstep::pipeline
