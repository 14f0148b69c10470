#include "bench/data_parallel/zero.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/mini_train/report.h"
#include "bench/program/run_records.h"
#include "core/error.h"
#include "core/options.h"
#include "core/provenance.h"
#include "parallel/parameters/zero_bytes.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;
using trainer::TrainOptions;
using workload::Layout;

constexpr const char* kColumns =
    "#{:>4} {:>5} {:>6} {:>8} {:>15} {:>7} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} "
    "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}\n";

// Shortens optimizer:file+parameters:host to "o:f p:h"; a location without a kind is the optimizer's.
std::string short_text_of(const workload::OffloadPlaces& places) {
  if (places == workload::OffloadPlaces{.optimizer = places.optimizer}) return std::string(name_of(places.optimizer));
  std::string text;
  const auto add = [&](char kind, workload::Offload place) {
    if (place == workload::Offload::none) return;
    text += (text.empty() ? "" : " ") + std::string(1, kind) + ":" + name_of(place)[0];
  };
  add('o', places.optimizer);
  add('g', places.gradients);
  add('p', places.parameters);
  add('a', places.activations);
  return text;
}

// Rajbhandari et al. 2019, figure 1 and table 1: mixed precision with Adam, all in GB of 1e9 bytes.
std::string paper_text(const ZeroFlags& flags) {
  std::string text = fmt::format(
      "# the paper's table for {:g} parameters on {} ranks, 16 bits (arXiv:1910.02054):", flags.psi, flags.psi_ranks);
  for (const std::int32_t stage : {0, 1, 2, 3}) {
    const parallel::BytesByKind bytes = parallel::zero_bytes({.elems = static_cast<std::int64_t>(flags.psi),
                                                              .ranks = flags.psi_ranks,
                                                              .stage = stage,
                                                              .compute = core::DType::bf16,
                                                              .gradient = core::DType::bf16});
    text += fmt::format("{} stage {}: {:.4g} GB", stage == 0 ? "" : ",", stage,
                        static_cast<double>(parallel::total_of(bytes)) / 1e9);
  }
  return text + "\n";
}

std::string megabytes(double bytes) {
  return fmt::format("{:.3f}", bytes / 1e6);
}

std::string columns_text() {
  return fmt::format(fmt::runtime(kColumns), "dp", "zero", "shards", "prefetch", "offload", "updated", "dtype", "grads",
                     "weights", "gradients", "optimizer", "formula", "w peak", "g peak", "all peak", "sent w", "sent g",
                     "sent r", "moved o", "moved g", "moved p", "moved a", "update", "step", "wrong") +
         fmt::format(fmt::runtime(kColumns), "", "", "", "", "", "", "", "", "(MB)", "(MB)", "(MB)", "(MB)", "(MB)",
                     "(MB)", "(MB)", "(MB)", "(MB)", "(MB)", "(MB)", "(MB)", "(MB)", "(MB)", "(ms)", "(ms)", "");
}

// A second line for a row that uses ZeRO++.
std::string plus_text(const Layout& row, const ZeroResult& result) {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "#   " : "; ") + more; };
  if (row.weight_compression != workload::CompressionWay::none) {
    add("weights as " + text_of(workload::Compression(row.weight_compression)));
  }
  if (row.secondary_ranks > 0) {
    add(fmt::format("backwards gather from a secondary copy over {} ranks: sent {} MB more", row.secondary_ranks,
                    megabytes(result.sent.secondary)));
  }
  if (row.compression.given()) add("gradients as " + text_of(row.compression));
  if (row.near_ranks > 0) {
    add(fmt::format("{} neighbours sum first: sent {} MB more among them", row.near_ranks,
                    megabytes(result.sent.near)));
  }
  return text.empty() ? "" : text + "\n";
}

}  // namespace

std::string zero_heading_text(const ZeroFlags& flags, const TrainOptions& options) {
  const workload::Model& model = options.model;
  return fmt::format(
             "# lockstep version {}, {}: training steps with parameters sharded over data-parallel ranks\n"
             "# {}: {} layers, hidden {}, {} parameters; per rank: {} microbatch{} of {} sequences of {} tokens, "
             "{} thread{}\n",
             core::build().version, flags.step.program, title_of(model), model.layers, model.hidden,
             parameters_of(model), options.layout.microbatches, options.layout.microbatches == 1 ? "" : "es",
             options.layout.microbatch_size, options.model.sequence, options.threads, options.threads == 1 ? "" : "s") +
         paper_text(flags) +
         "# weights, gradients, optimizer: bytes per rank between steps, as its allocator counts them; formula: "
         "their sum;\n"
         "#   peak: peak bytes of weights, of gradients, and of all kinds (with activations and buffers) in a step;\n"
         "#   shards: ranks that share a set of shards; each set has dp / shards replicas (HSDP);\n"
         "#   sent: per rank and step, by gathers of weights (w) and reductions of gradients (g) within a set of "
         "shards, and over\n"
         "#   replicas of shards (r), with as little traffic as a ring;\n"
         "#   offload: o optimizer, g gradients, p parameters, a activations; in h host memory, f files; moved: "
         "bytes of\n"
         "#   each that a rank copies to the device and back per step;\n"
         "#   updated: all weights at the end of the step, or each bucket after its reduction, which then frees its "
         "gradients;\n"
         "#   update: the optimizer's part of the step, on the slowest rank;\n"
         "#   wrong: bytes held, sent, moved or gathered at once differ from the formulas with the buckets' padding; "
         "MB = 1e6 bytes\n" +
         columns_text();
}

std::string zero_row_text(const TrainOptions& options, const ZeroResult& result) {
  const Layout& row = options.layout;
  const auto of = [](const parallel::BytesByKind& bytes, MemoryKind kind) {
    return megabytes(static_cast<double>(bytes[static_cast<std::size_t>(kind)]));
  };
  const auto moved = [&](std::size_t kind) { return megabytes(static_cast<double>(result.offloaded[kind])); };
  const std::string wrong = result.wrong();
  const std::string prefetch = row.zero < 3 ? "-" : row.prefetch ? "on" : "off";
  std::string text = fmt::format(
      " {:>4} {:>5} {:>6} {:>8} {:>15} {:>7} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} "
      "{:>9} {:>9} {:>9} {:>9} {:>9.2f} {:>9.2f} {:>6}\n",
      row.dp, row.zero, row.zero == 0 ? "-" : std::to_string(shards_of(row)), prefetch, short_text_of(row.offload),
      row.update == workload::Update::per_bucket ? "bucket" : "end", core::short_name_of(row.compute),
      core::short_name_of(row.gradient), of(result.held, MemoryKind::weights), of(result.held, MemoryKind::gradients),
      of(result.held, MemoryKind::optimizer), megabytes(static_cast<double>(parallel::total_of(result.forms.held))),
      of(result.peak_of_each, MemoryKind::weights), of(result.peak_of_each, MemoryKind::gradients),
      megabytes(static_cast<double>(result.peak_bytes)), megabytes(result.sent.weights),
      megabytes(result.sent.gradients), megabytes(result.sent.replicas), moved(0), moved(1), moved(2),
      megabytes(static_cast<double>(result.activations_moved)), result.update_median_ms(), result.step_ms(),
      wrong.empty() ? "0" : "wrong");
  text += plus_text(row, result);
  if (!wrong.empty()) text += "#   " + wrong + "\n";
  return text;
}

std::string zero_ending_text(const std::vector<ZeroResult>& results) {
  const auto wrong =
      std::count_if(results.begin(), results.end(), [](const ZeroResult& result) { return !result.is_right(); });
  if (wrong == 0) return fmt::format("# {} rows hold and send exactly the bytes of the formulas\n", results.size());
  return fmt::format("# {} of {} rows hold or send other bytes than the formulas say\n", wrong, results.size());
}

namespace {

core::NamedNumbers by_offload_kind(const parallel::OffloadedBytes& bytes) {
  return {{"optimizer", static_cast<double>(bytes[0])},
          {"gradients", static_cast<double>(bytes[1])},
          {"parameters", static_cast<double>(bytes[2])}};
}

core::NamedNumbers sent_by_name(const Layout& row, const SentBytes& sent) {
  core::NamedNumbers named{{"weights", sent.weights}, {"gradients", sent.gradients}, {"over_replicas", sent.replicas}};
  if (row.secondary_ranks > 0) named.emplace_back("secondary", sent.secondary);
  if (row.near_ranks > 0) named.emplace_back("near", sent.near);
  return named;
}

core::RunRecord run_record_of(const StepFlags& flags, const std::vector<TrainOptions>& rows) {
  int most = 0;
  for (const TrainOptions& row : rows) most = std::max(most, row.layout.dp);
  core::RunRecord run = mini_train::run_record(flags, flags.options, most);
  run.oversubscribed = program::is_oversubscribed(flags.options.mpi, most, flags.options.threads);
  return run;
}

core::ShardingRecord sharding_record(const core::RunRecord& run, const TrainOptions& options,
                                     const ZeroResult& result) {
  const Layout& row = options.layout;
  core::ShardingRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.model = mini_train::model_record(options);
  record.ranks = row.dp;
  record.threads = options.threads;
  record.zero_stage = row.zero;
  record.shard_ranks = shards_of(row);
  record.prefetch = row.prefetch;
  record.dtype = core::short_name_of(row.compute);
  record.gradient_dtype = core::short_name_of(row.gradient);
  record.optimizer = kernels::rule_of(row.optimizer).name;
  record.microbatches = row.microbatches;
  record.padded_elems = result.padded;
  record.held_bytes = mini_train::memory_bytes(result.held);
  record.peak_bytes = mini_train::with_total(mini_train::memory_bytes(result.peak_of_each), result.peak_bytes);
  record.formula_bytes = mini_train::memory_bytes(result.forms.held);
  record.sent_bytes = sent_by_name(row, result.sent);
  record.formula_sent_bytes = sent_by_name(row, result.forms.sent);
  if (row.secondary_ranks > 0) record.secondary_ranks = row.secondary_ranks;
  if (row.near_ranks > 0) record.near_ranks = row.near_ranks;
  if (row.compression.given()) record.compression = text_of(row.compression);
  if (row.weight_compression != workload::CompressionWay::none) {
    record.weight_compression = text_of(workload::Compression(row.weight_compression));
  }
  if (const std::string wrong = result.wrong(); !wrong.empty()) {
    record.status = "wrong";
    record.error = wrong;
  }
  record.samples_ms = result.samples_ms;
  record.energy = result.energy;
  record.offload = text_of(row.offload);
  record.update = row.update == workload::Update::per_bucket ? "per_bucket" : "step_end";
  record.offloaded_bytes = std::llround(result.offloaded_bytes());
  core::NamedNumbers moved = by_offload_kind(result.offloaded);
  moved.emplace_back("activations", static_cast<double>(result.activations_moved));
  record.offloaded_by_kind = moved;
  record.formula_offloaded_by_kind = by_offload_kind(result.forms.offloaded);
  record.update_ms = result.update_median_ms();
  return record;
}

}  // namespace

int run_zero_bench(const ZeroFlags& flags, const program::Print& print) {
  const std::vector<TrainOptions> rows = zero_rows(flags);
  const core::RunRecord run = run_record_of(flags.step, rows);
  bool has_run = false;
  const RowsOutput<ZeroResult> output{
      .heading = mini_train::place_text(rows.back()) + zero_heading_text(flags, rows.front()),
      .serve = serve_zero,
      .run = run_zero,
      .row_text = zero_row_text,
      .ending = zero_ending_text,
      .write = [&](core::RecordWriter& writer, const TrainOptions& row, const ZeroResult& result) {
        if (!std::exchange(has_run, true)) writer.write(run);
        writer.write(sharding_record(run, row, result));
      }};
  return run_rows(flags.step, rows, output, print);
}

}  // namespace lockstep::parallel_bench
