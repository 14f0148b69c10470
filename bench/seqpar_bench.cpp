// seqpar_bench: attention over ranks that share a sequence. The table, the records and the exit status.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "bench/program/run_records.h"
#include "bench/seqpar_bench/seqpar.h"
#include "bench/step/layer_part.h"
#include "bench/step/part.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/record.h"
#include "workload/context_layer.h"
#include "workload/memory.h"

namespace lockstep::context_bench {
namespace {

struct Longest {
  workload::ContextWay way = workload::ContextWay::ring;
  int ranks = 1;
  std::int64_t tokens = 0;  // a multiple of the number of chunks; 0: no sequence fits
};

using workload::ContextWay;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 34;

double needed_bytes(const ContextFlags& flags, const workload::Layout& layout, std::int64_t tokens) {
  const workload::Model model = workload::parse_model(flags.fit_model + ",sequence=" + std::to_string(tokens));
  if (const std::string reason = why_invalid(model, layout); !reason.empty()) {
    throw core::usage_error("--fit: " + reason);
  }
  const auto ranks = workload::memory_of(model, layout, schedule_of(layout));
  return ranks[workload::worst_of(ranks)].total();
}

// Memory grows with the length.
std::int64_t longest_of(const ContextFlags& flags, const workload::Layout& layout) {
  const std::int64_t unit = std::int64_t{256} * chunks_of(context_of(layout));
  const auto fits = [&](std::int64_t units) { return needed_bytes(flags, layout, units * unit) <= flags.fit_gb * 1e9; };
  std::int64_t most = 1;
  while (most * unit < kMostTokens && fits(most)) most *= 2;
  std::int64_t least = most / 2;  // known to fit
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least * unit;
}

// For --fit: for one rank, and for each way on each number of ranks.
std::vector<Longest> longest_sequences(const ContextFlags& flags) {
  if (flags.fit_model.empty()) return {};
  workload::Layout layout = workload::parse_layout(flags.fit_layout);
  std::vector<Longest> all{{.tokens = longest_of(flags, layout)}};
  for (const int ranks : flags.ranks) {
    for (const ContextWay way : flags.ways) {
      layout.cp = ranks;
      layout.cp_way = way;
      layout.flash = way != ContextWay::colossal;
      all.push_back({way, ranks, longest_of(flags, layout)});
    }
  }
  return all;
}

std::string longest_text(const ContextFlags& flags, const std::vector<Longest>& all) {
  if (all.empty()) return "";
  std::string text = fmt::format(
      "# longest sequence of {} that trains in {:g} GB per rank, layout {}: by the step model, nothing was run\n"
      "#{:>10} {:>3} {:>12} {:>16}\n",
      flags.fit_model, flags.fit_gb, flags.fit_layout.empty() ? "of one rank" : flags.fit_layout, "way", "cp", "tokens",
      "over one rank");
  for (const Longest& longest : all) {
    const double ratio = static_cast<double>(longest.tokens) / static_cast<double>(all.front().tokens);
    text += fmt::format("#{:>10} {:>3} {:>12} {:>16.2f}\n", longest.ranks == 1 ? "-" : name_of(longest.way),
                        longest.ranks, longest.tokens, all.front().tokens > 0 ? ratio : 0);
  }
  return text;
}

int most_ranks(const ContextFlags& flags) {
  return *std::max_element(flags.ranks.begin(), flags.ranks.end());
}

std::string heading_text(const ContextFlags& flags) {
  return fmt::format(
      "# lockstep version {}, {}: attention of one layer, whose sequence ranks share; forward and backward\n"
      "# {} sequence{}, {} heads of {} columns, {}, {}; {} thread{} per rank\n"
      "# {}\n"
      "# kernels: all kernels alone; comm: communication alone; serial: without overlap; async: communication runs\n"
      "#   concurrently with blocks that do not need it; hidden: 1 - (async - kernels) / comm; simul.: hidden, "
      "predicted\n"
      "#   by the simulator from these kernels on the emulated link; load: kernels of the slowest rank over the mean,\n"
      "#   measured alone on as many cores as there are\n"
      "# sent: by the rank that sends most, counted in the plans that ran and equal to the list's; peak: of tensors\n"
      "#   besides the input and the output's gradient, of the rank that holds most; differs: from one rank's result, "
      "of\n"
      "#   the largest element. Times are medians of the slowest rank's; each round runs all modes; MB = 1e6 bytes\n",
      core::build().version, flags.program, flags.batch, flags.batch == 1 ? "" : "s", flags.heads, flags.head_columns,
      core::short_name_of(flags.dtype), flags.causal ? "causal" : "no mask", flags.threads,
      flags.threads == 1 ? "" : "s", step_bench::place_text(flags, most_ranks(flags)));
}

struct Row {
  const ContextFlags& flags;
  const parallel::ContextLayer& layer;
  const Result& result;

  const step_bench::PartResult& part() const { return result.part; }
};
using Columns = std::vector<program::Column<Row>>;

Columns columns(const ContextFlags& flags) {
  using program::count;
  using program::figure;
  using program::kMegabytes;
  using program::kWhole;
  Columns columns{{{"way", "", 9}, [](auto& r) { return std::string(name_of(r.layer.shape.way)); }},
                  {{"cp", "", 3}, kWhole, [](auto& r) { return r.layer.shape.ranks; }},
                  {{"length", "(tokens)", 8}, kWhole, [](auto& r) { return r.layer.length; }}};
  for (const Direction direction : step_bench::kDirections) {
    const Columns of_modes = step_bench::mode_columns<Row>(direction);
    columns.insert(columns.end(), of_modes.begin(), of_modes.end());
  }
  columns.insert(
      columns.end(),
      {{{"hidden", "(%)", 9},
        [](auto& r) { return r.layer.shape.ranks == 1 ? "-" : program::share_text(r.result.hidden()); }},
       {{"simul.", "(%)", 6},
        [](auto& r) { return r.flags.link ? fmt::format("{:.1f}", 100 * r.result.simulated_hidden()) : "-"; }},
       {{"load", "", 5}, {}, [](auto& r) { return r.result.load(); }}});
  for (const Direction direction : step_bench::kDirections) {
    const std::string name = step_bench::name_of(direction);
    columns.push_back({{"sent " + name.substr(0, 1), "(MB)", 8},
                       kMegabytes,
                       [direction](auto& r) { return r.part().most_sent_bytes(direction); },
                       count("sent_bytes." + name)});
    columns.push_back(
        {figure("formula_bytes." + name), [direction](auto& r) { return r.part().most_formula_bytes(direction); }});
    if (!flags.link) continue;
    columns.push_back({figure("simulated_exposed_us." + name), [direction](auto& r) {
                         return r.result.simulated_exposed_us[static_cast<std::size_t>(direction)];
                       }});
  }
  columns.insert(
      columns.end(),
      {{{"peak", "(MB)", 8}, {2, 1e-6}, [](auto& r) { return r.part().memory_bytes(); }, figure("peak_bytes")},
       {{"differs", "", 9}, [](auto& r) { return fmt::format("{:.1e}", r.part().worst()); }},
       {figure("difference"), [](auto& r) { return std::isnan(r.part().worst()) ? 1 : r.part().worst(); }},
       {figure("allowed_difference"), [](auto& r) { return r.result.allowed_difference; }}});
  return columns;
}

std::string ending_text(std::size_t rows, std::size_t wrong) {
  if (wrong == 0) {
    return fmt::format("# {} row{} give{} one rank's results and send{} exactly the bytes of the lists\n", rows,
                       rows == 1 ? "" : "s", rows == 1 ? "s" : "", rows == 1 ? "s" : "");
  }
  return fmt::format("# {} of {} rows are WRONG\n", wrong, rows);
}

core::StepRecord context_record(const core::RunRecord& run, const ContextFlags& flags,
                                const parallel::ContextLayer& layer, const Result& result) {
  core::StepRecord record = program::new_step_record(run, "context", layer.shape.ranks, flags.threads, layer.dtype);
  record.choices = {{"way", std::string(name_of(layer.shape.way))}, {"causal", layer.shape.causal}};
  record.sizes = {
      {"batch", layer.batch}, {"length", layer.length}, {"heads", layer.heads}, {"head_columns", layer.head_columns}};
  const workload::ContextList list = workload::context_list(layer.shape);
  const double all_chunks = workload::chunks_of(layer.shape);
  std::vector<double> pairs;
  for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
    pairs.push_back(workload::chunk_pairs(list, r) / (all_chunks * all_chunks));
  }
  record.counts = {{"pairs", *std::max_element(pairs.begin(), pairs.end())}};
  record.series = {{"pairs_of_rank", pairs}, {"kernels_us", result.kernels_us()}};
  add_part(result.part, step_bench::kKindShares, record);
  program::set_error(result.wrong(), record);
  return record;
}

// Runs all requested cases and prints a table. Returns the exit status: 0, or core::Failure's if a
// row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_context(const ContextFlags& flags, const program::Print& print) {
  check_layers(flags);
  const std::vector<Longest> longest = longest_sequences(flags);  // refuses wrong flags before anything is printed
  const core::RunRecord run = part_run_record(flags, most_ranks(flags), step_bench::kLayerSeed);
  program::StepTable<Row> table(columns(flags), print, program::writes_output(flags.mpi) ? flags.json_file : "");
  table.begin(heading_text(flags));
  table.write(run);
  Whole whole;
  std::int64_t length_of_whole = 0;
  const std::vector<parallel::ContextLayer> layers = layers_of(flags);
  for (const parallel::ContextLayer& layer : layers) {
    if (layer.length != length_of_whole) whole = reference_of(layer, flags.threads);
    length_of_whole = layer.length;
    const Result result = run_layer(flags, layer, whole);
    table.add({flags, layer, result}, context_record(run, flags, layer, result),
              energy_text(result.part, &layer == &layers.back()));
  }
  return table.end(ending_text(table.rows(), table.wrong()) + longest_text(flags, longest));
}

int run(int argc, char** argv) {
  ContextFlags flags = parse_context_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.ranks = {mpi->placement().num_ranks};
    return run_context(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::context_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("seqpar_bench", [&] { return lockstep::context_bench::run(argc, argv); });
}
