// tune: writes the table from which `--algo auto` chooses on this machine. Example: tune --ranks 2,4,8
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/sweep/sweep.h"
#include "collectives/algorithms/algorithm.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/tuning/tuning.h"
#include "core/error.h"
#include "core/output_file.h"
#include "core/provenance.h"
#include "core/size.h"
#include "core/statistics.h"

namespace lockstep {
namespace {

using collectives::Kind;

struct TunerOptions {
  std::string transport = "local";
  std::vector<collectives::Kind> kinds;
  std::string ranks = "2,4,8";    // as --ranks of the sweeps; ignored under MPI, where mpirun gives the number
  std::string min_bytes = "8";    // as -b
  std::string max_bytes = "16M";  // as -e
  int step_factor = 2;            // as -f
  double time_budget_s = 120;     // for the whole run
  std::string path;               // path of the table's file
};

// Candidates at one point, and the fastest so far. A later candidate wins only if it is faster by more than the noise
// between equals, so that the table does not flicker between runs: the catalogue's order breaks ties.
struct Best {
  std::string algorithm;
  double median_us;
};
constexpr double kClearlyFaster = 0.98;

using Points = std::map<std::tuple<Kind, int, std::int64_t>, Best>;  // (collective, ranks, bytes)

void consider(Points& points, int num_ranks, const sweep::Comparison& comparison) {
  const sweep::RowResult& result = comparison.out_of_place;
  if (result.wrong.value_or(0) != 0 || comparison.requested == backends::kLibrary) return;
  const double median_us = core::median(result.samples_us);
  const auto [best, is_new] =
      points.try_emplace({result.operation.kind, num_ranks, result.bytes}, Best{comparison.requested, median_us});
  if (!is_new && median_us < best->second.median_us * kClearlyFaster) best->second = {comparison.requested, median_us};
}

std::string algorithms_to_try(Kind kind) {
  std::string names = "all";
  for (const std::string& variant : algorithms::tuned_variants(kind)) names += "," + variant;
  return names;
}

sweep::SweepFlags flags_for(const TunerOptions& options, Kind kind, bool under_mpi) {
  std::vector<std::string> words{std::string(sweep::program_of_kind(kind)),
                                 "--transport",
                                 options.transport,
                                 "-b",
                                 options.min_bytes,
                                 "-e",
                                 options.max_bytes,
                                 "-f",
                                 fmt::format("{}", options.step_factor),
                                 "-w",
                                 "2",
                                 "--algo",
                                 algorithms_to_try(kind),
                                 "--time-budget",
                                 fmt::format("{}", options.time_budget_s / static_cast<double>(options.kinds.size()))};
  if (!under_mpi) words.insert(words.end(), {"--ranks", options.ranks});
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  sweep::SweepFlags flags = sweep::parse_sweep_flags(kind, static_cast<int>(argv.size()), argv.data());
  flags.race = true;
  return flags;
}

void merge(tuning::Table& table, const std::string& transport, const Points& points) {
  const auto replaced = [&](const tuning::Entry& entry) {
    return entry.transport == transport && std::any_of(points.begin(), points.end(), [&](const auto& point) {
             return std::get<0>(point.first) == entry.kind && std::get<1>(point.first) == entry.num_ranks;
           });
  };
  std::erase_if(table.entries, replaced);
  for (const auto& [key, best] : points) {
    table.entries.push_back({transport, std::get<0>(key), std::get<1>(key), std::get<2>(key), best.algorithm});
    program::to_stdout(fmt::format("{:16} {:3} ranks {:>9}  {:24} {:10.2f} us\n",
                                   collectives::name_of(std::get<0>(key)), std::get<1>(key),
                                   core::format_size(std::get<2>(key)), best.algorithm, best.median_us));
  }
}

// Measures, then replaces the entries of the same transport, collectives and numbers of ranks in the table at `path`,
// if that table is of this machine; else begins a new one. Prints one line per measured size. Returns the exit status.
int tune(const TunerOptions& options, transports::MpiWorld* mpi) {
  std::optional<core::FolderLock> lock;  // a second run would disturb the times, and one of the two lose its entries
  if (mpi == nullptr || mpi->placement().rank == 0) lock.emplace("--output", core::folder_of(options.path));
  const std::string machine = core::fingerprint(core::this_machine());
  Points points;
  sweep::SweepOutput output;
  output.print = [](const std::string&) {};
  output.measured = [&](const backends::Backend&, int num_ranks, const sweep::Comparison& comparison) {
    consider(points, num_ranks, comparison);
  };
  int worst = 0;
  for (Kind kind : options.kinds) {
    const sweep::SweepFlags flags = flags_for(options, kind, mpi != nullptr);
    worst = std::max(worst, sweep::run_sweep(flags, {}, mpi, output));
  }
  if (points.empty()) return worst;  // a rank that reports nothing
  tuning::Table table{machine, {}};
  if (tuning::has_table(options.path)) table = tuning::load_table(options.path);
  if (table.machine != machine) table = {machine, {}};
  merge(table, options.transport, points);
  tuning::save_table(table, options.path);
  program::to_stdout("written: " + options.path + "\n");
  return worst;
}

using program::FlagValue;
using Flag = program::FlagOf<TunerOptions>;

std::vector<Kind> kinds_of(const FlagValue& value) {
  std::vector<Kind> kinds;
  for (const FlagValue& name : value.list()) kinds.push_back(collectives::parse_kind(name.text));
  return kinds;
}

std::string transport_of(const FlagValue& value) {
  if (value.text != "local" && value.text != "mpi")
    throw value.refused("not a transport that can be tuned", "local mpi");
  return value.text;
}

const std::array kFlags{
    Flag{"--transport", "local", "local, or mpi under mpirun",
         [](TunerOptions& o, const FlagValue& v) { o.transport = transport_of(v); }},
    Flag{"--collectives", "all_reduce,reduce_scatter,all_gather,broadcast,reduce,all_to_all",
         "collectives to measure, a list", [](TunerOptions& o, const FlagValue& v) { o.kinds = kinds_of(v); }},
    Flag{"--ranks", "2,4,8", "numbers of ranks, a list", [](TunerOptions& o, const FlagValue& v) { o.ranks = v.text; }},
    Flag{"-b,--minbytes", "8", "smallest message", [](TunerOptions& o, const FlagValue& v) { o.min_bytes = v.text; }},
    Flag{"-e,--maxbytes", "16M", "largest message", [](TunerOptions& o, const FlagValue& v) { o.max_bytes = v.text; }},
    Flag{"-f,--stepfactor", "2", "factor between sizes",
         [](TunerOptions& o, const FlagValue& v) { o.step_factor = integer(v, 2, 64); }},
    Flag{"--time-budget", "120", "seconds for the whole run",
         [](TunerOptions& o, const FlagValue& v) { o.time_budget_s = v.number(0, 1e9); }},
    Flag{"--output", "the user's table", "file for the table; --algo auto reads the user's",
         [](TunerOptions& o, const FlagValue& v) { o.path = file_name(v); }},
};

TunerOptions parse(int argc, char** argv) {
  TunerOptions options{.kinds = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast,
                                 Kind::reduce, Kind::all_to_all},
                       .path = tuning::default_table_path()};
  program::CommandLine line("Measures all algorithms, and writes a table of the fastest, which --algo auto reads");
  declare_all(line, kFlags, "Options");
  line.parse(argc, argv);
  read_all(line, kFlags, options);
  return options;
}

int run(int argc, char** argv) {
  const TunerOptions options = parse(argc, argv);
  if (options.transport == "local") return tune(options, nullptr);
  return transports::run_mpi_program(argc, argv, std::chrono::seconds(60),
                                     [&](auto& mpi) { return tune(options, &mpi); });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tune", [&] { return lockstep::run(argc, argv); });
}
