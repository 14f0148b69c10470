// seqpar_bench: attention over ranks that share a sequence. The table, the records and the exit status.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/program/program.h"
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
  for (const Longest& one : all) {
    const double ratio = static_cast<double>(one.tokens) / static_cast<double>(all.front().tokens);
    text += fmt::format("#{:>10} {:>3} {:>12} {:>16.2f}\n", one.ranks == 1 ? "-" : name_of(one.way), one.ranks,
                        one.tokens, all.front().tokens > 0 ? ratio : 0);
  }
  return text;
}

constexpr const char* kColumns =
    "#{:>9} {:>3} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>5} {:>8} {:>8} {:>8} {:>9}\n";
constexpr const char* kRow =
    " {:>9} {:>3} {:>7} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9} {:>6} "
    "{:>5.2f} "
    "{:>8.3f} {:>8.3f} {:>8.2f} {:>9.1e}{}\n";

int most_ranks(const ContextFlags& flags) {
  return *std::max_element(flags.ranks.begin(), flags.ranks.end());
}

std::string heading_text(const ContextFlags& flags) {
  const std::string columns =
      fmt::format(fmt::runtime(kColumns), "", "", "", "forward", "", "", "", "backward", "", "", "", "", "", "", "", "",
                  "", "") +
      fmt::format(fmt::runtime(kColumns), "way", "cp", "length", "kernels", "comm", "serial", "async", "kernels",
                  "comm", "serial", "async", "hidden", "simul.", "load", "sent f", "sent b", "peak", "differs") +
      fmt::format(fmt::runtime(kColumns), "", "", "(tokens)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)",
                  "(ms)", "(%)", "(%)", "", "(MB)", "(MB)", "(MB)", "");
  return fmt::format(
             "# lockstep version {}, {}: attention of one layer, whose sequence ranks share; forward and backward\n"
             "# {} sequence{}, {} heads of {} columns, {}, {}; {} thread{} per rank\n"
             "# {}\n"
             "# kernels: all kernels alone; comm: communication alone; serial: one after the other; async: "
             "communication "
             "runs\n"
             "#   concurrently with blocks that do not need it; hidden: 1 - (async - kernels) / comm; simul.: hidden "
             "as "
             "the\n"
             "#   simulator has it, of these kernels on the emulated link; load: kernels of the slowest rank over the "
             "mean,\n"
             "#   measured alone on as many cores as there are\n"
             "# sent: by the rank that sends most, counted in the plans that ran and equal to the list's; peak: of "
             "tensors\n"
             "#   beside the input and the output's gradient, of the rank that holds most; differs: from one rank's "
             "result, of\n"
             "#   the largest element. Times are medians of the slowest rank's, in turn; MB = 1e6 bytes\n",
             core::build().version, flags.program, flags.batch, flags.batch == 1 ? "" : "s", flags.heads,
             flags.head_columns, core::short_name_of(flags.dtype), flags.causal ? "causal" : "no mask", flags.threads,
             flags.threads == 1 ? "" : "s", step_bench::place_text(flags, most_ranks(flags))) +
         columns;
}

std::string row_text(const ContextFlags& flags, const parallel::ContextLayer& layer, const Result& result) {
  const auto ms = [&](Mode mode, Direction direction) { return result.part.times.median_us(mode, direction) / 1e3; };
  const std::string wrong = result.wrong();
  const std::string simulated = flags.link ? fmt::format("{:.1f}", 100 * result.simulated_hidden()) : "-";
  std::string text = fmt::format(
      kRow, name_of(layer.shape.way), layer.shape.ranks, layer.length, ms(Mode::kernels, Direction::forward),
      ms(Mode::exchanges, Direction::forward), ms(Mode::serial, Direction::forward),
      ms(Mode::overlapped, Direction::forward), ms(Mode::kernels, Direction::backward),
      ms(Mode::exchanges, Direction::backward), ms(Mode::serial, Direction::backward),
      ms(Mode::overlapped, Direction::backward), layer.shape.ranks == 1 ? "-" : program::share_text(result.hidden()),
      simulated, result.load(), result.part.most_sent_bytes(Direction::forward) / 1e6,
      result.part.most_sent_bytes(Direction::backward) / 1e6, static_cast<double>(result.part.memory_bytes()) / 1e6,
      result.part.worst(), wrong.empty() ? "" : "  WRONG");
  if (!wrong.empty()) text += "#   " + wrong + "\n";
  return text;
}

std::string ending_text(std::size_t rows, std::size_t wrong) {
  if (wrong == 0) {
    return fmt::format("# {} row{} give{} one rank's results and send{} exactly the bytes of the lists\n", rows,
                       rows == 1 ? "" : "s", rows == 1 ? "s" : "", rows == 1 ? "s" : "");
  }
  return fmt::format("# {} of {} rows are WRONG\n", wrong, rows);
}

core::ContextRecord context_record(const core::RunRecord& run, const ContextFlags& flags,
                                   const parallel::ContextLayer& layer, const Result& result) {
  core::ContextRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.way = workload::name_of(layer.shape.way);
  record.ranks = layer.shape.ranks;
  record.threads = flags.threads;
  record.causal = layer.shape.causal;
  record.dtype = core::short_name_of(layer.dtype);
  record.sizes = {{"batch", static_cast<double>(layer.batch)},
                  {"length", static_cast<double>(layer.length)},
                  {"heads", static_cast<double>(layer.heads)},
                  {"head_columns", static_cast<double>(layer.head_columns)}};
  const step_bench::PartResult& part = result.part;
  record.times = part.times.records(step_bench::kKindShares);
  const workload::ContextList list = workload::context_list(layer.shape);
  const double all_chunks = workload::chunks_of(layer.shape);
  for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
    record.pairs.push_back(workload::chunk_pairs(list, r) / (all_chunks * all_chunks));
  }
  record.kernels_us = result.kernels_us();
  for (const auto& [name, direction] : {std::pair{"forward", Direction::forward}, {"backward", Direction::backward}}) {
    record.sent_bytes.emplace_back(name, part.most_sent_bytes(direction));
    record.listed_bytes.emplace_back(name, part.most_formula_bytes(direction));
  }
  if (flags.link) {
    record.simulated_exposed_us = {{"forward", result.simulated_exposed_us[0]},
                                   {"backward", result.simulated_exposed_us[1]}};
  }
  record.energy = part.energy;
  record.peak_bytes = part.memory_bytes();
  record.checked_passes = part.checked_passes;
  record.difference = std::isnan(part.worst()) ? 1 : part.worst();
  record.allowed_difference = result.allowed_difference;
  if (const std::string wrong = result.wrong(); !wrong.empty()) {
    record.status = "wrong";
    record.error = wrong;
  }
  return record;
}

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_context(const ContextFlags& flags, const program::Print& print) {
  check_layers(flags);
  const std::vector<Longest> longest = longest_sequences(flags);  // refuses wrong flags before anything is printed
  const bool tells = program::tells(flags.mpi);
  core::RecordWriter writer(tells ? flags.json_file : "");
  const core::RunRecord run = part_run_record(flags, most_ranks(flags), step_bench::kLayerSeed);
  writer.write(run);
  print(heading_text(flags));
  std::size_t rows = 0;
  std::size_t wrong = 0;
  Whole whole;
  std::int64_t length_of_whole = 0;
  const std::vector<parallel::ContextLayer> layers = layers_of(flags);
  for (const parallel::ContextLayer& layer : layers) {
    if (layer.length != length_of_whole) whole = reference_of(layer, flags.threads);
    length_of_whole = layer.length;
    const Result result = run_layer(flags, layer, whole);
    print(row_text(flags, layer, result));
    if (result.part.energy || &layer == &layers.back()) print(result.part.energy_text);
    if (writer.is_open()) writer.write(context_record(run, flags, layer, result));
    ++rows;
    wrong += result.wrong().empty() ? 0 : 1;
  }
  print(ending_text(rows, wrong));
  print(longest_text(flags, longest));
  writer.commit();
  return wrong > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
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
