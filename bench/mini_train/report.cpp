#include "bench/mini_train/report.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/program/place.h"
#include "bench/program/run_records.h"
#include "core/options.h"
#include "core/ranks.h"
#include "kernels/attention/attention.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/train/async_run.h"
#include "trainer/train/rank_steps.h"
#include "workload/rules.h"

namespace lockstep::mini_train {
namespace {

std::string link_text(const trainer::TrainOptions& options) {
  if (!options.link) return "";
  return fmt::format("# EMULATED links of {:g} us and {:g} GB/s in wall-clock time; kernels run on this machine\n",
                     options.link->latency_us, options.link->gbps);
}

}  // namespace

std::string layout_text(const workload::Layout& layout) {
  std::string text = fmt::format("dp {}, tp {}{}, pp {}", layout.dp, layout.tp,
                                 layout.sequence_parallel ? " with sequence parallelism" : "", layout.pp);
  if (layout.cp > 1) text += fmt::format(", cp {} ({})", layout.cp, workload::name_of(layout.cp_way));
  if (layout.zero > 0) text += fmt::format(", ZeRO {}", layout.zero);
  if (layout.shard_ranks > 0) {
    text += fmt::format(" over {} rank{}", layout.shard_ranks, layout.shard_ranks == 1 ? "" : "s");
    if (workload::replicas_of(layout) > 1) text += fmt::format(" in {} replicas", workload::replicas_of(layout));
  }
  if (layout.secondary_ranks > 0) text += fmt::format(", secondary copy over {} ranks", layout.secondary_ranks);
  if (layout.near_ranks > 0) text += fmt::format(", gradients in two hops, first over {} ranks", layout.near_ranks);
  if (layout.pp > 1) text += fmt::format(", schedule {}", layout.schedule);
  if (!layout.layers_of.empty()) text += fmt::format(", stages of {} layers", fmt::join(layout.layers_of, ":"));
  if (layout.microbatches > 1) text += fmt::format(", {} microbatches", layout.microbatches);
  if (layout.slices > 1 && layout.slice_tokens.empty()) text += fmt::format(", {} slices of tokens", layout.slices);
  if (!layout.slice_tokens.empty()) text += fmt::format(", slices of {} tokens", fmt::join(layout.slice_tokens, ":"));
  if (layout.recompute != workload::Recompute::none) {
    text += fmt::format(", {} recomputation", layout.recompute == workload::Recompute::full ? "full" : "selective");
  }
  if (layout.partition_activations) text += ", kept inputs split over tensor-parallel ranks";
  if (layout.offload.any()) text += fmt::format(", offload {}", text_of(layout.offload));
  return text;
}

std::string models_text() {
  std::string text = fmt::format("{:<10} {:>7} {:>7} {:>6} {:>11} {:>10} {:>13}\n", "name", "layers", "hidden", "heads",
                                 "vocabulary", "positions", "parameters");
  for (const std::string& name : workload::model_names()) {
    const workload::Model model = workload::parse_model(name);
    if (!why_not_trained(model, trainer::usual_layout()).empty()) continue;
    text += fmt::format("{:<10} {:>7} {:>7} {:>6} {:>11} {:>10} {:>13}\n", model.name, model.layers, model.hidden,
                        model.heads, model.vocabulary, model.positions, parameters_of(model));
  }
  return text;
}

std::string place_text(const trainer::TrainOptions& options) {
  if (options.device.cuda) {
    return "# " + program::gpus_text(options.device, options.layout.ranks(), options.mpi) +
           (options.attention.empty() ? "" : "; attention by " + options.attention) +
           (options.graph ? "; the step is a CUDA graph\n" : "\n");
  }
  std::string crowded = program::oversubscribed_text(options.mpi, options.ranks(), options.threads);
  if (options.mpi == nullptr) return crowded;
  const transports::MpiWorld& mpi = *options.mpi;
  const bool threaded = trainer::is_threaded(options);
  std::string text = fmt::format("# {}, {}: {}\n", mpi.library_version(), name_of(mpi.threads()),
                                 threaded ? "collectives over data-parallel ranks and messages overlap with kernels"
                                          : "all communication runs in the rank's own thread; nothing overlaps");
  const int threads = trainer::mesh_of(options).threads_per_rank;
  const int cores = mpi.placement().cores_per_rank;
  if (threaded && threads > cores) {
    text += fmt::format("# OVERSUBSCRIBED: {} threads per rank, {} of them waiting for communication, on {} core{}\n",
                        threads, threads - options.threads, cores, cores == 1 ? "" : "s");
    return text;
  }
  return text + crowded;
}

namespace {

std::string sync_text(const trainer::TrainOptions& options) {
  std::string text;
  if (options.sync.replicas_step_alone()) {
    text = fmt::format("# replicas step independently: --sync {}", text_of(options.sync));
    if (options.sync.has_server_rank()) {
      const trainer::Missed missed = trainer::missed_in(trainer::order_of(options));
      text += fmt::format(
          ", the server on rank {}; a gradient misses {:.2f} updates of other replicas on average, {} at most",
          options.layout.ranks(), missed.mean, missed.most);
    }
    text += '\n';
  }
  if (!options.straggler.given()) return text;
  text += fmt::format("# EMULATED straggler: {}", text_of(options.straggler));
  if (options.straggler.step_ms > 0) {
    text +=
        fmt::format("; these times alone give {:.2f} ms per step", predicted_step_ms(trainer::replica_run(options)));
  }
  text += '\n';
  return text;
}

}  // namespace

std::string step_name(const trainer::TrainOptions& options) {
  return "step/" + options.model.name + "/" + std::string(core::short_name_of(options.layout.compute)) + "/" +
         layout_text(options.layout) + "/threads:" + std::to_string(options.threads);
}

std::string heading_text(const TrainFlags& flags, const std::string& data, double peak_flops) {
  const trainer::TrainOptions& options = flags.options;
  const workload::Model& model = options.model;
  return fmt::format(
      "# {}: {} layers, hidden {}, {} heads, {} words, {} parameters; {}\n"
      "# {} rank{} of {} thread{}: {}; {} sequences of {} tokens per step, {} per microbatch\n"
      "# data: {}\n"
      "{}{}{}# FLOPs per token: {}, = {:.4g}; peak {:.4g} FLOP/s{}\n",
      title_of(model), model.layers, model.hidden, model.heads, model.vocabulary, parameters_of(model),
      core::short_name_of(options.layout.compute), options.layout.ranks(), options.layout.ranks() == 1 ? "" : "s",
      options.threads, options.threads == 1 ? "" : "s", layout_text(options.layout), options.layout.global_batch(),
      options.model.sequence, options.layout.microbatch_size, data, place_text(options), link_text(options),
      sync_text(options), workload::kFlopConvention, training_flops(model, 1, false), peak_flops,
      flags.peak_gflops > 0 ? " (--peak-gflops)" : " (measured: the best of several matrix products)");
}

double tokens_per_s(const TrainFlags& flags, const trainer::StepReport& report) {
  return static_cast<double>(flags.options.tokens_per_step()) / report.seconds;
}

double mfu_of(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops) {
  return training_flops(flags.options.model, tokens_per_s(flags, report), false) / peak_flops;
}

std::string step_text(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops, double exposed) {
  std::string text =
      fmt::format("step {:>6}  loss {:.4f}  norm {:<8.3g} rate {:<8.2e} {:>9.2f} ms  {:>8.0f} tokens/s  MFU {:>5.1f} %",
                  report.step, report.loss, report.norm, report.rate, report.seconds * 1e3, tokens_per_s(flags, report),
                  mfu_of(flags, report, peak_flops) * 100);
  if (exposed >= 0) text += fmt::format("  exposed {:>4.1f} %", exposed * 100);
  if (flags.options.sync.replicas_step_alone()) text += fmt::format("  sync {:.2f} ms", report.sync_seconds * 1e3);
  text += fmt::format("  memory {}", core::format_size(parallel::total_of(report.peak_bytes)));
  if (flags.options.layout.compute == core::DType::f16) text += fmt::format("  loss scale {:g}", report.loss_scale);
  if (report.skipped) text += "  skipped: gradients are not finite";
  return text + "\n";
}

std::string mfu_warning(const TrainFlags& flags, double most_mfu, double peak_flops) {
  if (most_mfu <= 1) return "";
  return fmt::format(
      "# MFU reached {:.0f} %; more than 100 % is impossible: the peak, {:.4g} FLOP/s ({}), is too low, so the MFU of "
      "this run is meaningless\n",
      most_mfu * 100, peak_flops, flags.peak_gflops > 0 ? "--peak-gflops" : "measured at the start");
}

double exposed_share(const std::vector<schedules::Breakdown>& ranks) {
  double exposed = 0;
  double all = 0;
  for (const schedules::Breakdown& rank : ranks) {
    exposed += static_cast<double>(rank.all_exposed_ps());
    all += static_cast<double>(rank.all_exposed_ps() + rank.compute_ps() + rank.bubble_ps + rank.between_ps);
  }
  return all > 0 ? exposed / all : 0;
}

std::string breakdown_text(std::span<const std::vector<schedules::Breakdown>> steps) {
  constexpr std::array kNames{"forward",
                              "backward",
                              "recomputation",
                              "optimizer",
                              "exposed: collectives in layers",
                              "exposed: messages between stages",
                              "exposed: gathers of weights",
                              "exposed: reductions of gradients",
                              "exposed: copies of activations",
                              "bubble: waiting for other ranks",
                              "between kernels"};  // in the order of mean_parts_ms
  if (steps.empty()) return "";
  std::array<std::vector<double>, kNames.size()> shares;
  std::vector<double> steps_ms;
  for (const auto& ranks : steps) {
    double& step_ms = steps_ms.emplace_back();
    const auto parts = program::mean_parts_ms(ranks);
    for (const auto& part : parts) step_ms += part.second;
    for (std::size_t p = 0; p < parts.size(); ++p) shares.at(p).push_back(parts[p].second / step_ms);
  }
  const std::size_t ranks = steps.front().size();
  std::string text =
      fmt::format("# breakdown of the last {} step{}, {:.2f} ms in the median; mean over {} rank{}\n", steps.size(),
                  steps.size() == 1 ? "" : "s", core::median(steps_ms), ranks, ranks == 1 ? "" : "s");
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const auto share = core::estimate({&shares[p], 1}, [](auto medians) { return medians[0]; }).within(0, 1);
    if (share.value == 0) continue;
    const bool is_known = steps.size() == 1 || share.is_known(1);
    text += fmt::format("#   {:<34} {:>9.2f} ms  {}{}\n", kNames[p], share.value * core::median(steps_ms),
                        is_known ? fmt::format("{:>5.1f} %", 100 * share.value) : core::undecided_text(share, 1),
                        is_known && steps.size() > 1 ? fmt::format(" +- {:.1f}", 100 * share.half()) : "");
  }
  return text;
}

std::string expert_text(const trainer::StepReport& report) {
  if (report.expert_loads.empty()) return "";
  std::string text = "# tokens of the last step per expert (moe_bench --loads), and the largest over an even share\n";
  for (std::size_t layer = 0; layer < report.expert_loads.size(); ++layer) {
    const std::vector<std::int64_t>& loads = report.expert_loads[layer];
    const auto sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}));
    const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
    text += fmt::format("#   layer {:<3} {:.2f}  {}\n", layer, most * static_cast<double>(loads.size()) / sum,
                        fmt::join(loads, ","));
  }
  return text;
}

std::string memory_text(const parallel::BytesByKind& predicted, const trainer::StepReport& report) {
  const parallel::BytesByKind& counted = report.peak_bytes;
  const auto row = [](std::string_view name, std::int64_t of_prediction, std::int64_t of_count) {
    return fmt::format("#   {:<12} {:>15} {:>15}  {}\n", name, of_prediction, of_count, core::format_size(of_count));
  };
  std::string text =
      fmt::format("# bytes of the rank with the highest peak in a step, at that peak\n#   {:<12} {:>15} {:>15}\n",
                  "kind", "predicted", "counted");
  for (std::size_t k = 0; k < parallel::kNumMemoryKinds; ++k) {
    text += row(name_of(static_cast<parallel::MemoryKind>(k)), predicted[k], counted[k]);
  }
  text += row("total", parallel::total_of(predicted), parallel::total_of(counted));
  return text + fmt::format("# counted in the order of the step's tasks; observed peak of the run: {}\n",
                            core::format_size(report.most_bytes));
}

std::string copies_text(const workload::Layout& layout, const trainer::StepReport& report) {
  if (report.copied_bytes == 0) return "";
  return fmt::format(
      "# activations to {} and back: {} copied per step on the rank with most, {} away at once; copies may take the "
      "time of {} layer{}\n",
      layout.offload.activations == workload::Offload::file ? "a file" : "host memory",
      core::format_size(report.copied_bytes), core::format_size(report.away_bytes), layout.offload_ahead,
      layout.offload_ahead == 1 ? "" : "s");
}

std::string sample_text(const std::string& prompt, const std::string& sample) {
  std::string text = "# sample\n";
  for (const char c : prompt + sample) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = c == '\n' || (byte >= 0x20 && byte < 0x7f);
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + "\n";
}

std::string ending_text(const trainer::TrainResult& result, bool of_bytes, double unigram_nats, double bigram_nats) {
  const char* const unit = of_bytes ? "bytes" : "tokens";
  return fmt::format(
      "# validation loss {:.4f} nats per token; baselines: {} by frequency: {:.4f}, pairs of {}: {:.4f}\n",
      result.validation_loss, unit, unigram_nats, unit, bigram_nats);
}

namespace {

constexpr std::size_t kMostSteps = 2000;
constexpr std::size_t kTimed = 9;

// Records name files without their folders, which are private.
std::string public_name(const std::string& data) {
  return data.starts_with('/') ? std::filesystem::path(data).filename().string() : data;
}

}  // namespace

core::NamedNumbers memory_bytes(const parallel::BytesByKind& bytes) {
  core::NamedNumbers named;
  for (std::size_t k = 0; k < parallel::kNumMemoryKinds; ++k) {
    named.emplace_back(name_of(static_cast<parallel::MemoryKind>(k)), static_cast<double>(bytes[k]));
  }
  return named;
}

core::NamedNumbers with_total(core::NamedNumbers named, std::int64_t total) {
  named.emplace_back("total", static_cast<double>(total));
  return named;
}

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

// The text is one for --layout and scaling's --layouts.
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
  if (layout.secondary_ranks > 0) record.numbers["secondary_ranks"] = layout.secondary_ranks;
  if (layout.near_ranks > 0) record.numbers["near_ranks"] = layout.near_ranks;
  add("chunks", layout.chunks, 1);
  add("microbatches", layout.microbatches, 1);
  record.numbers["sequence_parallel"] = layout.sequence_parallel ? 1 : 0;
  record.numbers["bucket_cap_bytes"] = layout.bucket_cap_bytes;
  // The others, but for those that the record has apart or the trainer sets for all.
  const std::string all = text_of(layout);
  for (const std::string_view word : core::split(all, ',')) {
    constexpr std::array kApart{"tp",    "pp",    "dp",         "cp",         "zero",        "shard_ranks", "chunks",
                                "batch", "dtype", "grad_dtype", "microbatch", "overlap_p2p", "early_stop"};
    const auto [name, value, has_value] = core::name_and_value(word);
    if (std::find(kApart.begin(), kApart.end(), name) == kApart.end()) add_word(std::string(name), std::string(value));
  }
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
  const std::vector<core::CudaDeviceInfo> gpus = program::gpus_of(options.device, options.layout.ranks());
  return kernels::attention_kernels(options.attention, gpus.empty() ? 0 : gpus.front().compute_capability,
                                    options.layout.compute, options.model.head_size);
}

}  // namespace

core::RunRecord run_record(const program::Invocation& flags, const trainer::TrainOptions& options, int ranks) {
  core::RunRecord run = program::real_run_record(flags, ranks, options.threads, options.seed, options.link);
  program::add_place(options.device, options.mpi, ranks, run);
  return run;
}

core::RunRecord run_record(const TrainFlags& flags) {
  const trainer::TrainOptions& options = flags.options;
  core::RunRecord run = run_record(flags, options, options.ranks());
  run.basis = basis_of(options);
  run.oversubscribed = program::is_oversubscribed(options.mpi, options.ranks(), options.threads);
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
  for (const Timed& timed : timed_) sorted.push_back(&timed);
  std::sort(sorted.begin(), sorted.end(),
            [](const Timed* a, const Timed* b) { return a->report.seconds < b->report.seconds; });
  return *sorted[(sorted.size() - 1) / 2];
}

core::TrainingRecord TrainingLog::record(const core::RunRecord& run, const schedules::Step& step,
                                         const std::string& data) const {
  const trainer::TrainOptions& options = flags_.options;
  const Timed& timed = typical();
  return {
      .run = run.run,
      .program = run.program,
      .basis = run.basis,
      .model = model_record(options),
      .layout = layout_record(options.layout),
      .schedule = options.layout.schedule,
      .dtype = std::string(core::short_name_of(options.layout.compute)),
      .ranks = run.ranks,
      .threads = options.threads,
      .data = public_name(data),
      .tokens_per_step = options.tokens_per_step(),
      .flop_convention = std::string(workload::kFlopConvention),
      .peak_flops = peak_flops_,
      .steps = steps_,
      .timed_step = timed.report.step,
      .parts_ms =
          program::mean_parts_ms(schedules::breakdown_of(step, timed.timeline, trainer::blocking_lanes(options))),
      .memory_bytes = with_total(memory_bytes(timed.report.peak_bytes), parallel::total_of(timed.report.peak_bytes)),
      .timeline = program::timeline_record(step, timed.timeline),
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
