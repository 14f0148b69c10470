#include "bench/parallel/zero.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "bench/serve/orders.h"
#include "bench/trainer/report.h"
#include "core/error.h"
#include "core/options.h"
#include "core/provenance.h"
#include "parallel/parameters/zero_bytes.h"
#include "trainer/step/train_step.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

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
std::string plus_text(const ZeroRow& row, const ZeroResult& result) {
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

std::string zero_heading_text(const ZeroFlags& flags) {
  const trainer::TrainOptions& options = flags.step.options;
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

std::string zero_row_text(const ZeroRow& row, const ZeroResult& result) {
  const auto of = [](const parallel::BytesByKind& bytes, MemoryKind kind) {
    return megabytes(static_cast<double>(bytes[static_cast<std::size_t>(kind)]));
  };
  const auto moved = [&](std::size_t kind) { return megabytes(static_cast<double>(result.offloaded[kind])); };
  const std::string wrong = result.wrong();
  const std::string prefetch = row.stage < 3 ? "-" : row.prefetch ? "on" : "off";
  std::string text = fmt::format(
      " {:>4} {:>5} {:>6} {:>8} {:>15} {:>7} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} "
      "{:>9} {:>9} {:>9} {:>9} {:>9.2f} {:>9.2f} {:>6}\n",
      row.replicas, row.stage, row.stage == 0 ? "-" : std::to_string(row.shards()), prefetch,
      short_text_of(row.offload), row.update == workload::Update::per_bucket ? "bucket" : "end",
      core::short_name_of(row.compute), core::short_name_of(row.gradient), of(result.held, MemoryKind::weights),
      of(result.held, MemoryKind::gradients), of(result.held, MemoryKind::optimizer),
      megabytes(static_cast<double>(parallel::total_of(result.forms.held))),
      of(result.peak_of_each, MemoryKind::weights), of(result.peak_of_each, MemoryKind::gradients),
      megabytes(static_cast<double>(result.peak_bytes)), megabytes(result.sent.weights),
      megabytes(result.sent.gradients), megabytes(result.sent.replicas), moved(0), moved(1), moved(2),
      megabytes(static_cast<double>(result.activations_moved)), result.update_median_ms(), result.step_ms(),
      wrong.empty() ? "0" : "wrong");
  text += plus_text(row, result);
  if (!wrong.empty()) text += "#   " + wrong + "\n";
  return text;
}

std::string zero_ending_text(std::size_t rows, std::size_t wrong) {
  if (wrong == 0) return fmt::format("# {} rows hold and send exactly the bytes of the formulas\n", rows);
  return fmt::format("# {} of {} rows hold or send other bytes than the formulas say\n", wrong, rows);
}

namespace {

core::NamedNumbers by_kind(const parallel::BytesByKind& bytes) {
  core::NamedNumbers named;
  for (std::size_t k = 0; k < parallel::kNumMemoryKinds; ++k) {
    named.emplace_back(parallel::name_of(static_cast<MemoryKind>(k)), static_cast<double>(bytes[k]));
  }
  return named;
}

core::NamedNumbers by_offload_kind(const parallel::OffloadedBytes& bytes) {
  return {{"optimizer", static_cast<double>(bytes[0])},
          {"gradients", static_cast<double>(bytes[1])},
          {"parameters", static_cast<double>(bytes[2])}};
}

core::NamedNumbers with_total(core::NamedNumbers named, double total) {
  named.emplace_back("total", total);
  return named;
}

core::NamedNumbers sent_by_name(const ZeroRow& row, const SentBytes& sent) {
  core::NamedNumbers named{{"weights", sent.weights}, {"gradients", sent.gradients}, {"over_replicas", sent.replicas}};
  if (row.secondary_ranks > 0) named.emplace_back("secondary", sent.secondary);
  if (row.near_ranks > 0) named.emplace_back("near", sent.near);
  return named;
}

}  // namespace

core::RunRecord zero_run_record(const ZeroFlags& flags) {
  const int most = *std::max_element(flags.step.replicas.begin(), flags.step.replicas.end());
  core::RunRecord run = program::real_run_record(flags.step, most, flags.step.options.threads, flags.step.options.seed);
  program::add_place(flags.step.options.device, flags.step.options.mpi, most, run);
  run.oversubscribed = program::is_oversubscribed(flags.step.options.mpi, most, flags.step.options.threads);
  return run;
}

core::ShardingRecord sharding_record(const core::RunRecord& run, const ZeroFlags& flags, const ZeroRow& row,
                                     const ZeroResult& result) {
  core::ShardingRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.model = mini_train::model_record(options_of(flags, row));
  record.ranks = row.replicas;
  record.threads = flags.step.options.threads;
  record.zero_stage = row.stage;
  record.shard_ranks = row.shards();
  record.prefetch = row.prefetch;
  record.dtype = core::short_name_of(row.compute);
  record.gradient_dtype = core::short_name_of(row.gradient);
  record.optimizer = kernels::rule_of(flags.step.options.layout.optimizer).name;
  record.microbatches = flags.step.options.layout.microbatches;
  record.padded_elems = result.padded;
  record.held_bytes = by_kind(result.held);
  record.peak_bytes = with_total(by_kind(result.peak_of_each), static_cast<double>(result.peak_bytes));
  record.formula_bytes = by_kind(result.forms.held);
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

namespace {

int serve_row(const ZeroFlags& flags) {
  const std::vector<ZeroRow> rows = zero_rows(flags);
  serve::check_one(rows.size(), "row");
  serve_zero(flags, rows.front());
  return 0;
}

}  // namespace

int run_zero_bench(const ZeroFlags& flags, const program::Print& plain) {
  if (flags.step.serve) return serve_row(flags);
  const std::vector<ZeroRow> rows = zero_rows(flags);
  program::Progress progress("rows", rows.size());
  const program::Print print = progress.around(plain);
  for (const ZeroRow& row : rows) {  // refuse rows that cannot run before anything is printed
    const trainer::TrainOptions options = options_of(flags, row);
    trainer::check_room(options, trainer::make_train_step(options.model, options.layout));
  }
  const bool tells = program::tells(flags.step.options.mpi);
  core::RecordWriter writer(tells ? flags.step.json_file : "");
  const core::RunRecord run = zero_run_record(flags);
  writer.write(run);
  print(mini_train::place_text(options_of(flags, rows.back())));
  print(zero_heading_text(flags));
  std::size_t wrong = 0;
  for (const ZeroRow& row : rows) {
    const ZeroResult result = run_zero(flags, row);
    progress.one_done();
    if (!tells) continue;
    print(zero_row_text(row, result));
    if (result.energy || &row == &rows.back()) print(result.energy_text);
    wrong += result.wrong().empty() ? 0 : 1;
    if (writer.is_open()) writer.write(sharding_record(run, flags, row, result));
  }
  if (!tells) return 0;
  print(zero_ending_text(rows.size(), wrong));
  writer.commit();
  return wrong > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::parallel_bench
