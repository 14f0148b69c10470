#include "bench/pipeline_perf/overlap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "bench/pipeline_perf/cases.h"
#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "core/statistics.h"
#include "schedules/passes/passes.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/buckets.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/network/topology.h"

namespace lockstep::pipeline {
namespace {

using program::FlagValue;
using schedules::Comm;
using schedules::GradientBucket;
using schedules::Op;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::Unit;
using Flag = program::FlagOf<OverlapFlags>;

constexpr double kLongestMs = 1e6;
constexpr const char* kWhat = "Step";
constexpr const char* kHow = "Costs";
constexpr const char* kOutput = "Output";

std::vector<double> caps_of(const FlagValue& value) {
  std::vector<double> caps;
  for (const FlagValue& part : value.list()) caps.push_back(part.number(0, 1e6));
  return caps;
}

transports::LinkSpec link_of(const FlagValue& value) {
  return value.parsed_by(transports::parse_link);
}

const std::array kFlagsOfWhat{
    Flag{"--mode", "simulated", "simulated: in virtual time; emulated: in wall-clock time on emulated devices",
         [](OverlapFlags& f, const FlagValue& v) {
           f.mode = mode_of(v);
           if (f.mode == Mode::real)
             throw v.refused("not a mode here (ddp_overlap_bench runs real kernels)", "simulated emulated");
         }},
    Flag{"--ranks", "4", "replicas of the model, a list",
         [](OverlapFlags& f, const FlagValue& v) { f.replicas = integer_list(v, 1, 256); }},
    Flag{"--zero", "0",
         "ZeRO stages, a list: 0 shards nothing (all-reduce of gradients), 1 the optimizer's state, 2 gradients too, 3 "
         "parameters too",
         [](OverlapFlags& f, const FlagValue& v) { f.zero_stages = integer_list(v, 0, 3); }},
    Flag{"--bucket-cap-mb", "25", "MiB of gradients per bucket, a list; the first bucket has at most 1 MiB",
         [](OverlapFlags& f, const FlagValue& v) { f.bucket_caps_mb = caps_of(v); }},
    Flag{"--layers", "12", "layers of the model",
         [](OverlapFlags& f, const FlagValue& v) { f.layers = integer(v, 1, 10000); }},
    Flag{"--microbatches", "1", "microbatches per step; with --zero 0 and 1 gradients are sent only after the last one",
         [](OverlapFlags& f, const FlagValue& v) { f.microbatches = integer(v, 1, 10000); }},
    Flag{"--prefetch", "1", "number of layers whose gathers are prefetched, with --zero 3",
         [](OverlapFlags& f, const FlagValue& v) { f.prefetch = integer(v, 0, 10000); }},
};

const std::array kFlagsOfCosts{
    Flag{"--t-f", "1", "milliseconds of a layer's forward",
         [](OverlapFlags& f, const FlagValue& v) { f.forward_ms = v.number(0, kLongestMs); }},
    Flag{"--t-b", "2", "milliseconds of a layer's backward",
         [](OverlapFlags& f, const FlagValue& v) { f.backward_ms = v.number(0, kLongestMs); }},
    Flag{"--t-opt", "0", "milliseconds of the optimizer",
         [](OverlapFlags& f, const FlagValue& v) { f.optimizer_ms = v.number_from(0, kLongestMs); }},
    Flag{"--bytes-a-layer", "28M", "bytes of gradients per layer, and the same for parameters",
         [](OverlapFlags& f, const FlagValue& v) { f.bytes_per_layer = v.size_bytes(); }},
    Flag{"--tensors-a-layer", "4",
         "equal tensors per layer that hold these bytes; a tensor is never split over two buckets",
         [](OverlapFlags& f, const FlagValue& v) { f.tensors_per_layer = integer(v, 1, 10000); }},
    Flag{"--algo", "ring", "algorithm of the collectives; one with a single lane",
         [](OverlapFlags& f, const FlagValue& v) { f.algorithm = v.text; }},
    Flag{"--link", "latency_us=20,gbps=12.5", "link of each rank, in each direction; gbps is 1e9 bytes per second",
         [](OverlapFlags& f, const FlagValue& v) { f.link = link_of(v); }},
    Flag{"--repeat", "5", "runs per row, with --mode emulated",
         [](OverlapFlags& f, const FlagValue& v) { f.repeat = integer(v, 1, 10000); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait of an emulated run fails",
         [](OverlapFlags& f, const FlagValue& v) { f.timeout_s = integer(v, 1, 86400); }},
};

const std::array kFlagsOfOutput{
    program::json_flag<OverlapFlags>(),
    Flag{"--trace", "", "file for a trace that ui.perfetto.dev opens; for a single row",
         [](OverlapFlags& f, const FlagValue& v) { f.trace_file = file_name(v); }},
};

}  // namespace

OverlapFlags parse_overlap_flags(int argc, const char* const* argv) {
  OverlapFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": how much of the communication of gradients and parameters overlaps with kernels.");
  declare_all(line, kFlagsOfWhat, kWhat);
  declare_all(line, kFlagsOfCosts, kHow);
  declare_all(line, kFlagsOfOutput, kOutput);
  line.parse(argc, argv);
  read_all(line, kFlagsOfWhat, flags);
  read_all(line, kFlagsOfCosts, flags);
  read_all(line, kFlagsOfOutput, flags);
  return flags;
}

namespace {

constexpr double kBytesPerMb = 1 << 20;

// Every replica is a pipe of one stage that runs its microbatches one after another.
schedules::Schedule replicas_of(int replicas, int microbatches) {
  schedules::Schedule schedule{
      .name = "replicas", .num_microbatches = microbatches, .stages_per_pipe = 1, .rank_of_stage = {}};
  for (std::int32_t r = 0; r < replicas; ++r) {
    schedule.rank_of_stage.push_back(r);
    auto& list = schedule.of_rank.emplace_back();
    for (std::int32_t m = 0; m < microbatches; ++m) {
      list.push_back({Op::forward, r, m});
      list.push_back({Op::backward, r, m});
    }
  }
  return schedule;
}

schedules::StageRecipe layers_of(const OverlapFlags& flags, bool kernels) {
  const auto ps = [&](double ms) { return kernels ? std::llround(ms * kPsPerMs) : 0; };
  schedules::StageRecipe recipe;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    recipe.forward.push_back({.op = Op::forward, .part = layer, .amount = ps(flags.forward_ms)});
    recipe.backward.push_back({.op = Op::backward, .part = flags.layers - 1 - layer, .amount = ps(flags.backward_ms)});
  }
  return recipe;
}

std::vector<Unit> units_of(const OverlapFlags& flags) {
  std::vector<Unit> units;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    units.push_back(
        {.first_part = layer, .parameter_bytes = flags.bytes_per_layer, .gradient_bytes = flags.bytes_per_layer});
  }
  return units;
}

}  // namespace

std::vector<GradientBucket> buckets_of(const OverlapFlags& flags, const OverlapCase& bench_case) {
  if (bench_case.zero_stage == 3) return schedules::buckets_of(units_of(flags));
  std::vector<schedules::Parameter> parameters;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    for (int t = 0; t < flags.tensors_per_layer; ++t) {
      const std::int64_t bytes = flags.bytes_per_layer / flags.tensors_per_layer;
      parameters.push_back({.elements = bytes, .grad_bytes = 1, .part = layer});
    }
  }
  const auto cap_bytes = static_cast<std::int64_t>(bench_case.bucket_cap_mb * kBytesPerMb);
  return schedules::gradient_buckets(parameters, schedules::ddp_rules(cap_bytes));
}

Step overlap_step(const OverlapFlags& flags, const OverlapCase& bench_case, bool kernels) {
  const auto stages = static_cast<std::size_t>(bench_case.replicas);
  Step step = schedules::lower(replicas_of(bench_case.replicas, flags.microbatches),
                               std::vector<schedules::StageCosts>(stages));
  step.groups.push_back({schedules::GroupKind::data, step.rank_of_stage});
  schedules::split_stages(step, std::vector<schedules::StageRecipe>(stages, layers_of(flags, kernels)));
  const std::vector<std::vector<GradientBucket>> buckets(stages, buckets_of(flags, bench_case));
  const std::vector<std::vector<Unit>> units(stages, units_of(flags));
  schedules::reduce_gradients(step, buckets,
                              {.comm = comms_of(bench_case).front(), .every_microbatch = bench_case.zero_stage >= 2});
  if (bench_case.zero_stage == 3) schedules::shard_parameters(step, units, {.in_flight = flags.prefetch + 1});
  const std::int64_t optimizer_ps = kernels ? std::llround(flags.optimizer_ms * kPsPerMs) : 0;
  schedules::add_optimizer(step, std::vector<std::int64_t>(stages, optimizer_ps), schedules::Barrier::none);
  if (bench_case.zero_stage == 1 || bench_case.zero_stage == 2) schedules::gather_after_step(step, units);
  step.name = bench_case.zero_stage == 0 ? "ddp" : "zero" + std::to_string(bench_case.zero_stage);
  schedules::check_step_or_throw(step);
  return step;
}

std::vector<Comm> comms_of(const OverlapCase& bench_case) {
  if (bench_case.zero_stage == 0) return {Comm::all_reduce};
  return {Comm::reduce_scatter, Comm::all_gather};
}

plan::Plan plan_of(const OverlapFlags& flags, Comm comm, int ranks) {
  plan::Plan plan;
  try {
    plan = algorithms::make_plan(algorithms::parse_choice(simulator::kind_of(comm), flags.algorithm), ranks, 0);
  } catch (const core::Error& error) {
    throw core::usage_error("--algo " + flags.algorithm + ": " + error.what());
  }
  if (plan::num_lanes(plan) <= 1) return plan;
  throw core::usage_error("--algo " + flags.algorithm + ": its plan has " + std::to_string(plan::num_lanes(plan)) +
                          " lanes; allowed here: one, such as ring's or halving_doubling's");
}

namespace {

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

std::optional<double> recurrence_of(const OverlapFlags& flags, const OverlapCase& bench_case) {
  if (bench_case.zero_stage != 0 || flags.algorithm != "ring") return std::nullopt;
  const double computed_ms = flags.microbatches * flags.layers * (flags.forward_ms + flags.backward_ms);
  std::vector<schedules::BucketTimes> buckets;
  for (const auto& bucket : buckets_of(flags, bench_case)) {
    const double after_ms = bucket.part * flags.backward_ms;  // earlier layers have their backward later
    buckets.push_back({computed_ms - after_ms, ring_ms(flags, bench_case.replicas, bucket.bytes)});
  }
  return std::max(computed_ms, schedules::end_of_buckets_ms(buckets)) + flags.optimizer_ms;
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
  add_runs(emulate(result.step, options, flags.repeat), result);
  result.step_ms = core::median(result.emulation->samples_ms);
}

}  // namespace

core::Estimate OverlapResult::hidden() const {
  const auto share = [this](double ms) { return communication_ms > 0 ? 1 - (ms - compute_ms) / communication_ms : 1; };
  if (!emulation) return core::Estimate{share(step_ms), share(step_ms), share(step_ms)}.within(0, 1);
  return core::estimate({&emulation->samples_ms, 1}, [&](auto medians) { return share(medians[0]); }).within(0, 1);
}

OverlapResult run_overlap(const OverlapFlags& flags, const OverlapCase& bench_case) {
  OverlapResult result;
  result.step = overlap_step(flags, bench_case);
  Simulated simulated = simulate_step(flags, result.step);
  result.step_ms = result.simulated_ms = simulated.makespan_ms;
  result.timeline = std::move(simulated.timeline);
  result.compute_ms = kernels_ms(result.step);
  result.communication_ms = simulate_step(flags, overlap_step(flags, bench_case, false)).makespan_ms;
  result.closed_form_ms = recurrence_of(flags, bench_case);
  if (flags.mode == Mode::emulated) emulate_case(result, flags);
  for (const Task& task : result.step.of_rank.front().tasks) result.collectives += task.comm != Comm::none ? 1 : 0;
  const schedules::SentBytes sent = schedules::count_sent(result.step).front();
  for (const double bytes : sent.of_groups) result.sent_bytes += bytes;
  return result;
}

}  // namespace lockstep::pipeline
