#include "bench/trainer/records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bench/pipeline/parts.h"
#include "bench/pipeline/records.h"
#include "bench/place/place.h"
#include "bench/trainer/text.h"
#include "core/cores.h"
#include "kernels/attention/attention_choice.h"
#include "trainer/train/async_run.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::mini_train {
namespace {

constexpr std::size_t kMostSteps = 2000;
constexpr std::size_t kTimed = 9;

// Records name files without their folders, which are private.
std::string public_name(const std::string& data) {
  return data.starts_with('/') ? std::filesystem::path(data).filename().string() : data;
}

const char* recompute_name(workload::Recompute recompute) {
  switch (recompute) {
    case workload::Recompute::selective:
      return "selective";
    case workload::Recompute::full:
      return "full";
    default:
      return "none";
  }
}

core::NamedNumbers memory_bytes(const parallel::BytesByKind& bytes) {
  core::NamedNumbers named;
  for (std::size_t k = 0; k < parallel::kNumMemoryKinds; ++k) {
    named.emplace_back(name_of(static_cast<parallel::MemoryKind>(k)), static_cast<double>(bytes[k]));
  }
  named.emplace_back("total", static_cast<double>(parallel::total_of(bytes)));
  return named;
}

}  // namespace

core::ModelRecord model_record(const trainer::TrainOptions& options) {
  const workload::Model& model = options.model;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  return {.name = model.name,
          .parameters = parameters_of(model),
          .numbers = {{"layers", number(model.layers)},
                      {"hidden", number(model.hidden)},
                      {"heads", number(model.heads)},
                      {"vocabulary", number(model.vocabulary)},
                      {"length", number(options.model.sequence)}}};
}

// Field names are those of scaling's --layouts.
core::LayoutRecord layout_record(const workload::Layout& layout) {
  core::LayoutRecord record;
  const auto add_word = [&](const std::string& name, const std::string& value) {
    record.text += (record.text.empty() ? "" : ",") + name + "=" + value;
  };
  const auto add = [&](const char* name, std::int64_t value, std::int64_t usual) {
    record.numbers[name] = value;
    if (value != usual) add_word(name, std::to_string(value));
  };
  add("dp", layout.dp, layout.ranks() == 1 ? 0 : 1);
  add("tp", layout.tp, 1);
  add("cp", layout.cp, 1);
  add("pp", layout.pp, 1);
  add("zero", layout.zero, 0);
  add("shard_ranks", layout.shard_ranks, 0);
  if (layout.secondary_ranks > 0) add("secondary_ranks", layout.secondary_ranks, 0);
  if (layout.near_ranks > 0) add("near_ranks", layout.near_ranks, 0);
  if (layout.weight_compression != workload::CompressionWay::none) {
    add_word("weight_compression", text_of(workload::Compression(layout.weight_compression)));
  }
  add("chunks", layout.chunks, 1);
  add("microbatches", layout.microbatches, 1);
  add("sequence_parallel", layout.sequence_parallel ? 1 : 0, 0);
  record.numbers["bucket_cap_bytes"] = layout.bucket_cap_bytes;
  if (layout.schedule != workload::Layout{}.schedule) add_word("schedule", layout.schedule);
  if (layout.recompute != workload::Recompute::none) add_word("recompute", recompute_name(layout.recompute));
  if (layout.partition_activations) add_word("partition_activations", "yes");
  if (layout.offload.any()) add_word("offload", text_of(layout.offload));
  if (layout.offload_ahead != workload::Layout{}.offload_ahead) {
    add_word("offload_ahead", std::to_string(layout.offload_ahead));
  }
  if (!layout.overlap_gradients) add_word("overlap", "0");
  return record;
}

std::string basis_of(const trainer::TrainOptions& options) {
  return options.link || options.straggler.given() ? "emulated" : "measured";
}

namespace {

std::optional<core::SyncRecord> sync_record(const trainer::TrainOptions& options) {
  if (!options.sync.replicas_step_alone()) return std::nullopt;
  core::SyncRecord record{.way = text_of(options.sync), .every = options.sync.every};
  if (options.straggler.given()) record.straggler = text_of(options.straggler);
  if (options.straggler.step_ms > 0) record.predicted_ms = predicted_step_ms(trainer::replica_run(options));
  if (options.sync.has_server_rank()) {
    const trainer::Missed missed = trainer::missed_in(trainer::order_of(options));
    record.missed_mean = missed.mean;
    record.missed_most = missed.most;
  }
  return record;
}

std::optional<core::ActivationsRecord> activations_record(const workload::Layout& layout,
                                                          const trainer::StepReport& report) {
  const bool offloads = layout.offload.activations != workload::Offload::none;
  if (!offloads && !layout.partition_activations) return std::nullopt;
  return core::ActivationsRecord{.place = std::string(name_of(layout.offload.activations)),
                                 .partitioned = layout.partition_activations,
                                 .ahead = layout.offload_ahead,
                                 .copied_bytes = report.copied_bytes,
                                 .away_bytes = report.away_bytes};
}

std::optional<std::string> attention_of(const trainer::TrainOptions& options) {
  if (!options.device.cuda) return std::nullopt;
  return options.attention.empty() ? kernels::kAttentionChoices.front() : options.attention;
}

}  // namespace

core::RunRecord run_record(const TrainFlags& flags) {
  const trainer::TrainOptions& options = flags.options;
  const int ranks = options.ranks();
  core::RunRecord run = pipeline::new_run_record(flags.program, flags.command, pipeline::Mode::simulated, ranks);
  run.basis = basis_of(options);
  run.oversubscribed = ranks * options.threads > core::usable_cores();
  program::add_place(options.device, options.mpi, ranks, run);
  run.seed = options.seed;
  if (options.link) run.link = program::link_record(*options.link);
  return run;
}

void TrainingLog::add_step(const trainer::StepReport& report, const schedules::StepTimeline& timeline) {
  if (!timeline.empty()) {
    if (timed_.size() == kTimed) timed_.erase(timed_.begin());
    timed_.push_back({report, timeline});
  }
  if ((report.step - 1) % every_ != 0 && report.step != flags_.options.steps) return;
  steps_.push_back({.step = report.step,
                    .loss = report.loss,
                    .norm = report.norm,
                    .rate = report.rate,
                    .skipped = report.skipped,
                    .ms = report.seconds * 1e3,
                    .tokens_per_s = tokens_per_s(flags_, report),
                    .mfu = mfu_of(flags_, report, peak_flops_)});
  const trainer::TrainOptions& options = flags_.options;
  if (options.layout.dp > 1) steps_.back().sent_bytes = report.sent_bytes;
  if (options.sync.replicas_step_alone()) steps_.back().sync_ms = report.sync_seconds * 1e3;
  if (steps_.size() <= kMostSteps) return;
  every_ *= 2;
  std::erase_if(steps_, [&](const core::TrainingStepRecord& step) { return (step.step - 1) % every_ != 0; });
}

const TrainingLog::Timed& TrainingLog::typical() const {
  std::vector<const Timed*> sorted;
  for (const Timed& one : timed_) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(),
            [](const Timed* a, const Timed* b) { return a->report.seconds < b->report.seconds; });
  return *sorted[(sorted.size() - 1) / 2];
}

core::TrainingRecord TrainingLog::record(const core::RunRecord& run, const schedules::Step& step,
                                         const std::string& data) const {
  const trainer::TrainOptions& options = flags_.options;
  const Timed& timed = typical();
  return {.run = run.run,
          .program = run.program,
          .basis = run.basis,
          .model = model_record(options),
          .layout = layout_record(options.layout),
          .schedule = options.layout.schedule,
          .dtype = std::string(core::short_name_of(options.layout.compute)),
          .ranks = run.ranks,
          .threads = options.threads,
          .data = public_name(data),
          .tokens_a_step = options.tokens_a_step(),
          .flop_convention = std::string(workload::kFlopConvention),
          .peak_flops = peak_flops_,
          .steps = steps_,
          .timed_step = timed.report.step,
          .parts_ms =
              pipeline::mean_parts_ms(schedules::breakdown_of(step, timed.timeline, trainer::blocking_lanes(options))),
          .memory_bytes = memory_bytes(timed.report.peak_bytes),
          .timeline = pipeline::timeline_record(step, timed.timeline),
          .graph = options.graph ? std::optional(true) : std::nullopt,
          .attention = attention_of(options),
          .compression =
              options.layout.compression.given() ? std::optional(text_of(options.layout.compression)) : std::nullopt,
          .sync = sync_record(options),
          .activations = activations_record(options.layout, timed.report)};
}

void TrainingLog::add_validations(core::TrainingRecord& record, double unigram_nats, double bigram_nats) const {
  if (validations_.empty()) return;
  record.validation = core::ValidationRecord{
      .loss = validations_.back().loss, .unigram = unigram_nats, .bigram = bigram_nats, .curve = validations_};
}

}  // namespace lockstep::mini_train
