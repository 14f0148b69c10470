#include "bench/parallel/zero_text.h"

#include <fmt/format.h>

#include "core/provenance.h"
#include "core/size.h"
#include "parallel/parameters/zero_bytes.h"

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

}  // namespace lockstep::parallel_bench
