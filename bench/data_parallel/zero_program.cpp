#include "bench/data_parallel/zero.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/mini_train/report.h"
#include "bench/program/columns.h"
#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "core/options.h"
#include "core/provenance.h"
#include "parallel/parameters/zero_bytes.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;
using trainer::TrainOptions;
using workload::Layout;

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
             "# {}: {} layers, hidden {}, {} parameters; per rank: {} microbatch{} of {} sequences of {} tokens, {} "
             "thread{}\n",
             core::build().version, flags.step.program, title_of(model), model.layers, model.hidden,
             parameters_of(model), options.layout.microbatches, options.layout.microbatches == 1 ? "" : "es",
             options.layout.microbatch_size, options.model.sequence, options.threads, options.threads == 1 ? "" : "s") +
         paper_text(flags) +
         "# weights, gradients, optimizer: bytes per rank between steps, as its allocator counts them; formula: their "
         "sum;\n"
         "#   peak: peak bytes of weights, of gradients, and of all kinds (with activations and buffers) in a step;\n"
         "#   shards: ranks that share a set of shards; each set has dp / shards replicas (HSDP);\n"
         "#   sent: per rank and step, by gathers of weights (w) and reductions of gradients (g) within a set of "
         "shards, and over\n"
         "#   replicas of shards (r), with as little traffic as a ring;\n"
         "#   offload: o optimizer, g gradients, p parameters, a activations; in h host memory, f files; moved: bytes "
         "of\n"
         "#   each that a rank copies to the device and back per step;\n"
         "#   updated: all weights at the end of the step, or each bucket after its reduction, which then frees its "
         "gradients;\n"
         "#   update: the optimizer's part of the step, on the slowest rank;\n"
         "#   WRONG: bytes held, sent, moved or gathered at once differ from the formulas with the buckets' padding; "
         "MB = 1e6 bytes\n";
}

namespace {

struct Row {
  const TrainOptions& options;
  const ZeroResult& result;

  const Layout& layout() const { return options.layout; }
};
using Column = program::Column<Row>;

// Bytes in MB.
template <class Value>
Column bytes_column(const char* name, const Value& value) {
  return {{name, "(MB)", 9}, program::kMegabytes, value};
}

Column kind_column(const char* name, parallel::BytesByKind ZeroResult::*bytes, MemoryKind kind) {
  return bytes_column(name, [bytes, kind](auto& r) { return (r.result.*bytes)[static_cast<std::size_t>(kind)]; });
}

std::vector<Column> columns() {
  using program::kWhole;
  const auto prefetch = [](auto& r) { return r.layout().zero < 3 ? "-" : r.layout().prefetch ? "on" : "off"; };
  const auto updated = [](auto& r) { return r.layout().update == workload::Update::per_bucket ? "bucket" : "end"; };
  return {
      {{"dp", "", 4}, kWhole, [](auto& r) { return r.layout().dp; }},
      {{"zero", "", 5}, kWhole, [](auto& r) { return r.layout().zero; }},
      {{"shards", "", 6}, [](auto& r) { return r.layout().zero == 0 ? "-" : std::to_string(shards_of(r.layout())); }},
      {{"prefetch", "", 8}, prefetch},
      {{"offload", "", 15}, [](auto& r) { return short_text_of(r.layout().offload); }},
      {{"updated", "", 7}, updated},
      {{"dtype", "", 6}, [](auto& r) { return std::string(core::short_name_of(r.layout().compute)); }},
      {{"grads", "", 6}, [](auto& r) { return std::string(core::short_name_of(r.layout().gradient)); }},
      kind_column("weights", &ZeroResult::held, MemoryKind::weights),
      kind_column("gradients", &ZeroResult::held, MemoryKind::gradients),
      kind_column("optimizer", &ZeroResult::held, MemoryKind::optimizer),
      bytes_column("formula", [](auto& r) { return parallel::total_of(r.result.forms.held); }),
      kind_column("w peak", &ZeroResult::peak_of_each, MemoryKind::weights),
      kind_column("g peak", &ZeroResult::peak_of_each, MemoryKind::gradients),
      bytes_column("all peak", [](auto& r) { return r.result.peak_bytes; }),
      bytes_column("sent w", [](auto& r) { return r.result.sent.weights; }),
      bytes_column("sent g", [](auto& r) { return r.result.sent.gradients; }),
      bytes_column("sent r", [](auto& r) { return r.result.sent.replicas; }),
      bytes_column("moved o", [](auto& r) { return r.result.offloaded[0]; }),
      bytes_column("moved g", [](auto& r) { return r.result.offloaded[1]; }),
      bytes_column("moved p", [](auto& r) { return r.result.offloaded[2]; }),
      bytes_column("moved a", [](auto& r) { return r.result.activations_moved; }),
      {{"update", "(ms)", 9}, {2, 1e-3}, [](auto& r) { return r.result.update_us(); }},
      {{"step", "(ms)", 9}, {2, 1e-3}, [](auto& r) { return r.result.step_us(); }},
  };
}

core::NamedNumbers by_offload_kind(const parallel::OffloadedBytes& bytes) {
  return {{"optimizer", static_cast<double>(bytes[0])},
          {"gradients", static_cast<double>(bytes[1])},
          {"parameters", static_cast<double>(bytes[2])}};
}

core::NamedNumbers sent_by_name(const Layout& row, const SentBytes& sent) {
  core::NamedNumbers named;
  for (const SentKind& kind : kSentKinds) {
    if (kind.is_used(row)) named.emplace_back(kind.name, sent.*kind.bytes);
  }
  return named;
}

core::RunRecord run_record_of(const StepFlags& flags, const std::vector<TrainOptions>& rows) {
  int most = 0;
  for (const TrainOptions& row : rows) most = std::max(most, row.layout.dp);
  core::RunRecord run = mini_train::run_record(flags, flags.options, most);
  run.oversubscribed = program::is_oversubscribed(flags.options.mpi, most, flags.options.threads);
  return run;
}

core::StepRecord sharding_record(const core::RunRecord& run, const TrainOptions& options, const ZeroResult& result) {
  const Layout& row = options.layout;
  core::StepRecord record = program::new_step_record(run, "sharding", row.dp, options.threads, row.compute);
  record.model = mini_train::model_record(options);
  record.layout = mini_train::layout_record(row);
  record.choices = {{"zero_stage", row.zero},
                    {"shard_ranks", shards_of(row)},
                    {"secondary_ranks", row.secondary_ranks},
                    {"near_ranks", row.near_ranks},
                    {"prefetch", row.prefetch},
                    {"microbatches", row.microbatches},
                    {"gradient_dtype", std::string(core::short_name_of(row.gradient))},
                    {"optimizer", std::string(kernels::rule_of(row.optimizer).name)},
                    {"compression", text_of(row.compression)},
                    {"weight_compression", text_of(workload::Compression(row.weight_compression))},
                    {"offload", text_of(row.offload)},
                    {"update", row.update == workload::Update::per_bucket ? "per_bucket" : "step_end"}};
  record.times.push_back({.direction = "step",
                          .mode = "measured",
                          .samples_us = result.part.times.samples(kZeroStep, step_bench::Direction::forward),
                          .parts_us = {{"update", result.update_us()}}});
  record.counts = {{"padded_elems", static_cast<double>(result.padded)}};
  program::add_group("held_bytes", mini_train::memory_bytes(result.held), record.counts);
  program::add_group("formula_bytes", mini_train::memory_bytes(result.forms.held), record.counts);
  program::add_group("sent_bytes", sent_by_name(row, result.sent), record.counts);
  program::add_group("formula_sent_bytes", sent_by_name(row, result.forms.sent), record.counts);
  program::add_group("peak_bytes",
                     mini_train::with_total(mini_train::memory_bytes(result.peak_of_each), result.peak_bytes),
                     record.figures);
  program::add_group("offloaded_bytes", by_offload_kind(result.offloaded), record.figures);
  program::add_group("offloaded_bytes", {{"activations", static_cast<double>(result.activations_moved)}},
                     record.figures);
  program::add_group("formula_offloaded_bytes", by_offload_kind(result.forms.offloaded), record.figures);
  record.energy = result.part.energy;
  program::set_error(result.wrong(), record);
  return record;
}

}  // namespace

int run_zero_bench(const ZeroFlags& flags, const program::Print& plain) {
  const std::vector<TrainOptions> rows = zero_rows(flags);
  if (serves(flags.step, rows, serve_zero)) return 0;
  program::Progress progress("rows", rows.size());
  const bool writes = program::writes_output(flags.step.options.mpi);
  const core::RunRecord run = run_record_of(flags.step, rows);
  program::StepTable<Row> table(columns(), progress.around(plain), writes ? flags.step.json_file : "");
  table.begin(mini_train::place_text(rows.back()) + zero_heading_text(flags, rows.front()));
  table.write(run);
  for (const TrainOptions& row : rows) {
    const ZeroResult result = run_zero(flags.step, row);
    progress.one_done();
    if (!writes) continue;
    table.add({row, result}, sharding_record(run, row, result),
              plus_text(row.layout, result) + energy_text(result.part, &row == &rows.back()));
  }
  if (!writes) return 0;
  return table.end(table.wrong() == 0
                       ? fmt::format("# {} rows hold and send exactly the bytes of the formulas\n", table.rows())
                       : fmt::format("# {} of {} rows hold or send a number of bytes that differs from the formulas\n",
                                     table.wrong(), table.rows()));
}

}  // namespace lockstep::parallel_bench
