// tune: writes the table from which `--algo auto` chooses on this machine, and tuning files of Open MPI and NCCL.
// Example: tune --ranks 2,4,8
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/collective_perf/sweep.h"
#include "bench/tuned_files.h"
#include "collectives/algorithms/algorithm.h"
#include "collectives/libraries/mpi_library.h"
#include "collectives/libraries/nccl_rules.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/tuning/tuning.h"
#include "core/error.h"
#include "core/options.h"
#include "core/output_file.h"
#include "core/provenance.h"
#include "core/ranks.h"
#include "core/statistics.h"

namespace lockstep {
namespace {

using collectives::Kind;
using program::FlagValue;

struct TunerOptions {
  std::string transport = "local";
  std::vector<collectives::Kind> kinds;
  std::string ranks = "2,4,8";     // as --ranks of the sweeps; ignored under MPI, where mpirun gives the number
  std::string min_bytes = "8";     // as -b
  std::string max_bytes = "16M";   // as -e
  int step_factor = 2;             // as -f
  double time_budget_s = 120;      // for the whole run
  std::string path = {};           // path of the table's file
  std::string openmpi_rules = {};  // path of Open MPI's rules file; empty: none
  std::string nccl_tuner = {};     // path of the configuration of NCCL's tuner plugin; empty: none
  std::vector<libraries::NcclChoice> nccl_choices = {};
  int nccl_channels = 0;

  bool compares_library() const { return !openmpi_rules.empty() || !nccl_tuner.empty(); }
};

// Candidates at one point, and the fastest so far. A later candidate wins only if it is faster by more than the noise
// between equals, so that the table does not flicker between runs: the order of the candidates breaks ties.
struct Best {
  std::string algorithm;
  double median_us;
  double low_us;  // lower bound of the median's 95 % interval
};
constexpr double kClearlyFaster = 0.98;
constexpr std::size_t kFewSamples = 10;  // fewer have an interval that is too narrow

struct Fastest {
  std::optional<Best> ours;
  std::optional<Best> library;  // fastest of its own algorithms
};

using Points = std::map<std::tuple<Kind, int, std::int64_t>, Fastest>;  // (collective, ranks, bytes)

// NCCL's own decision is no candidate: the example plugin cannot leave a call to NCCL. Open MPI's rules can.
void consider(Points& points, int num_ranks, const sweep::Comparison& comparison) {
  const sweep::RowResult& result = comparison.out_of_place;
  if (result.wrong.value_or(0) != 0) return;
  if (comparison.requested == backends::kLibrary && comparison.backend->on_gpus()) return;
  Fastest& fastest = points[{result.operation.kind, num_ranks, result.bytes}];
  std::optional<Best>& best = backends::asks_library(comparison.requested) ? fastest.library : fastest.ours;
  const core::Summary times = core::summarize(result.samples_us);
  if (best && times.median >= best->median_us * kClearlyFaster) return;
  // A rule that replaces the library's own decision must be clearly faster.
  const bool replaces_own = best && best->algorithm == backends::kLibrary;
  if (replaces_own && (times.count < kFewSamples || times.ci_high >= best->low_us)) return;
  best = {comparison.requested, times.median, times.ci_low};
}

// Open MPI's own decision comes first, so that a rule replaces it only where an algorithm is clearly faster.
std::string library_algorithms_to_try(const TunerOptions& options, Kind kind, const transports::MpiWorld* mpi) {
  std::string names;
  if (!options.openmpi_rules.empty()) {
    names = std::string(backends::kLibrary) + ",";
    for (const auto& algorithm : libraries::mpi_algorithms(kind, mpi->placement().num_ranks))
      names += libraries::mpi_choice_text(algorithm) + ",";
  }
  if (!options.nccl_tuner.empty()) {
    for (const auto& choice : options.nccl_choices)
      if (!libraries::choice_refusal(choice, kind)) names += libraries::nccl_choice_text(choice) + ",";
  }
  return names;
}

std::string algorithms_to_try(const TunerOptions& options, Kind kind, const transports::MpiWorld* mpi) {
  std::string names = library_algorithms_to_try(options, kind, mpi) + "all";
  for (const std::string& variant : algorithms::tuned_variants(kind)) names += "," + variant;
  return names;
}

sweep::SweepFlags flags_for(const TunerOptions& options, Kind kind, const transports::MpiWorld* mpi) {
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
                                 algorithms_to_try(options, kind, mpi),
                                 "--time-budget",
                                 fmt::format("{}", options.time_budget_s / static_cast<double>(options.kinds.size()))};
  if (mpi == nullptr) words.insert(words.end(), {"--ranks", options.ranks});
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  sweep::SweepFlags flags = sweep::parse_sweep_flags(kind, static_cast<int>(argv.size()), argv.data());
  flags.race = true;
  return flags;
}

// Entries of a run replace the entries of the same transport, collectives and numbers of ranks.
void replace(std::vector<tuning::Entry>& entries, const std::vector<tuning::Entry>& measured) {
  std::erase_if(entries, [&](const tuning::Entry& old) {
    return std::any_of(measured.begin(), measured.end(), [&](const tuning::Entry& entry) {
      return entry.transport == old.transport && entry.kind == old.kind && entry.num_ranks == old.num_ranks &&
             entry.num_hosts == old.num_hosts;
    });
  });
  entries.insert(entries.end(), measured.begin(), measured.end());
}

std::vector<tuning::Entry> entries_of(const Points& points, std::optional<Best> Fastest::*best,
                                      const std::string& transport, int num_hosts) {
  std::vector<tuning::Entry> entries;
  for (const auto& [key, fastest] : points) {
    const auto& [kind, num_ranks, bytes] = key;
    if (const auto& one = fastest.*best)
      entries.push_back({transport, kind, num_ranks, bytes, one->algorithm, num_hosts});
  }
  return entries;
}

std::string point_text(const std::tuple<Kind, int, std::int64_t>& point) {
  return fmt::format("{:<16} {:>3} ranks {:>9}", collectives::name_of(std::get<0>(point)), std::get<1>(point),
                     core::format_size(std::get<2>(point)));
}

void print(const Points& points, bool compares_library) {
  for (const auto& [point, fastest] : points) {
    std::string line = point_text(point);
    if (fastest.ours) line += fmt::format("  {:<24} {:>10.2f} us", fastest.ours->algorithm, fastest.ours->median_us);
    if (compares_library && fastest.library)
      line += fmt::format("  {:<36} {:>10.2f} us", fastest.library->algorithm, fastest.library->median_us);
    program::to_stdout(line + "\n");
  }
}

// Names the points at which our algorithms are faster than all of the library's: its tuning file cannot choose ours.
void print_left_out(const Points& points, const tuned_files::TunedFile& file) {
  for (const std::string& line : file.left_out) program::to_stdout("skipped: " + line + "\n");
  for (const auto& [point, fastest] : points) {
    if (!fastest.ours || !fastest.library || fastest.ours->median_us >= fastest.library->median_us * kClearlyFaster)
      continue;
    program::to_stdout(fmt::format(
        "skipped: {}, {} ranks, {}: {} is faster by {:.2f} times than the library's best, {}\n",
        collectives::name_of(std::get<0>(point)), std::get<1>(point), core::format_size(std::get<2>(point)),
        fastest.ours->algorithm, fastest.library->median_us / fastest.ours->median_us, fastest.library->algorithm));
  }
}

void write(const std::string& path, const tuned_files::TunedFile& tuned) {
  core::AtomicFile file(path);
  file.write(tuned.text);
  file.commit();
  program::to_stdout(fmt::format("written: {} ({} rules)\n", path, tuned.rules));
}

void write_library_files(const TunerOptions& options, const tuning::Table& table, const Points& points) {
  if (!options.openmpi_rules.empty()) {
    const auto id_of = [](Kind kind, std::string_view name) -> std::optional<int> {
      constexpr int kTwo = 2;  // lists the algorithms for two ranks, too
      for (const auto& algorithm : libraries::mpi_algorithms(kind, kTwo))
        if (algorithm.name == name) return algorithm.id;
      return std::nullopt;
    };
    const auto file = tuned_files::openmpi_rules_file(table.library_entries, id_of);
    print_left_out(points, file);
    write(options.openmpi_rules, file);
  }
  if (!options.nccl_tuner.empty()) {
    const auto file = tuned_files::nccl_tuner_file(table.library_entries, options.nccl_channels);
    print_left_out(points, file);
    write(options.nccl_tuner, file);
  }
}

void check_openmpi(const TunerOptions& options, const transports::MpiWorld* mpi) {
  if (options.openmpi_rules.empty() || !libraries::mpi_algorithms(Kind::all_reduce, 2).empty()) return;
  throw core::usage_error(
      fmt::format("--openmpi-rules: {} does not list its algorithms; allowed: with Open MPI", mpi->library_version()));
}

// Measures, then replaces the entries of the same transport, collectives and numbers of ranks in the table at `path`,
// if that table is of this machine; else begins a new one. Tuning files of libraries are written from the whole table,
// so that runs of several numbers of ranks add up. Prints one line per measured size. Returns the exit status.
int tune(const TunerOptions& options, transports::MpiWorld* mpi) {
  check_openmpi(options, mpi);
  std::vector<sweep::SweepFlags> sweeps;  // all flags are read before anything is made
  for (const Kind kind : options.kinds) sweeps.push_back(flags_for(options, kind, mpi));
  const std::string machine = core::fingerprint(core::this_machine());
  tuning::Table table{machine, {}};
  std::optional<core::FolderLock> lock;  // a second run would disturb the times, and one of the two lose its entries
  if (mpi == nullptr || mpi->placement().rank == 0) {
    if (tuning::has_table(options.path)) table = tuning::load_table(options.path);
    if (table.machine != machine) table = {machine, {}};
    program::check_writable({options.openmpi_rules, options.nccl_tuner});
    lock.emplace("--output", core::folder_of(options.path));
    program::check_writable({options.path});
  }
  Points points;
  sweep::SweepOutput output;
  output.print = [](const std::string&) {};
  output.measured = [&](const backends::Backend&, int num_ranks, const sweep::Comparison& comparison) {
    consider(points, num_ranks, comparison);
  };
  int worst = 0;
  for (const sweep::SweepFlags& flags : sweeps) worst = std::max(worst, sweep::run_sweep(flags, {}, mpi, output));
  if (points.empty()) return worst;  // a rank that reports nothing
  const int num_hosts = mpi == nullptr ? 1 : mpi->placement().num_hosts;
  replace(table.entries, entries_of(points, &Fastest::ours, options.transport, num_hosts));
  if (options.compares_library())
    replace(table.library_entries, entries_of(points, &Fastest::library, options.transport, num_hosts));
  print(points, options.compares_library());
  tuning::save_table(table, options.path);
  program::to_stdout("written: " + options.path + "\n");
  write_library_files(options, table, points);
  return worst;
}

using Flag = program::FlagOf<TunerOptions>;

std::vector<Kind> kinds_of(const FlagValue& value) {
  std::vector<Kind> kinds;
  for (const FlagValue& name : value.list()) kinds.push_back(collectives::parse_kind(name.text));
  return kinds;
}

std::string transport_of(const FlagValue& value) {
  return value.one_of(std::array{"local", "mpi", "nccl"});
}

// "ring/ll128" and so on.
std::vector<libraries::NcclChoice> nccl_choices_of(const FlagValue& value) {
  std::vector<libraries::NcclChoice> choices;
  for (const FlagValue& part : value.list()) {
    const std::vector<FlagValue> parts = part.list('/');
    if (parts.size() != 2) throw part.refused("not an algorithm and a protocol", "for instance ring/ll128,tree/simple");
    try {
      choices.push_back(
          libraries::parse_nccl_choice(fmt::format("library:algo={}:proto={}", parts[0].text, parts[1].text)));
    } catch (const core::Error&) {
      throw part.refused(
          "not an algorithm and a protocol of NCCL",
          "ring, tree, nvls, nvlstree, collnetdirect, collnetchain or pat before /ll, /ll128 or /simple");
    }
  }
  return choices;
}

constexpr const char* kNcclChoices = "ring/ll,ring/ll128,ring/simple,tree/ll,tree/ll128,tree/simple";

const std::array kFlags{
    Flag{"--transport", "local", "local, mpi under mpirun, or nccl",
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
    Flag{"--output", "the user's table", "file for the table; --algo auto reads the user's table",
         [](TunerOptions& o, const FlagValue& v) { o.path = file_name(v); }},
    Flag{"--openmpi-rules", "",
         "with --transport mpi: also measure Open MPI's own algorithms, and write its rules to this file",
         [](TunerOptions& o, const FlagValue& v) { o.openmpi_rules = file_name(v); }},
    Flag{
        "--nccl-tuner", "",
        "with --transport nccl: also measure NCCL's own algorithms, and write the CSV of its tuner plugin to this file",
        [](TunerOptions& o, const FlagValue& v) { o.nccl_tuner = file_name(v); }},
    Flag{"--nccl-choices", kNcclChoices,
         "NCCL's algorithms and protocols to measure, a list; ignores those that the GPUs do not support",
         [](TunerOptions& o, const FlagValue& v) { o.nccl_choices = nccl_choices_of(v); }},
    Flag{"--nccl-channels", "0", "channels in each row of the CSV; 0: NCCL's own number, with which it was measured",
         [](TunerOptions& o, const FlagValue& v) { o.nccl_channels = integer(v, 0, 64); }},
};

void check(const TunerOptions& options) {
  const auto needs = [&](const std::string& path, const char* flag, const char* transport) {
    if (path.empty() || options.transport == transport) return;
    throw FlagValue{flag, path}.refused(fmt::format("--transport is {}", options.transport),
                                        fmt::format("with --transport {}", transport));
  };
  needs(options.openmpi_rules, "--openmpi-rules", "mpi");
  needs(options.nccl_tuner, "--nccl-tuner", "nccl");
}

TunerOptions parse(int argc, char** argv) {
  TunerOptions options{.kinds = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast,
                                 Kind::reduce, Kind::all_to_all},
                       .path = tuning::default_table_path(),
                       .nccl_choices = nccl_choices_of({"--nccl-choices", kNcclChoices})};
  program::CommandLine line(
      "Measures all algorithms, writes a table of the fastest, which --algo auto reads, and tuning files of Open MPI "
      "and NCCL");
  declare_all(line, kFlags, "Options");
  line.parse(argc, argv);
  read_all(line, kFlags, options);
  check(options);
  return options;
}

int run(int argc, char** argv) {
  const TunerOptions options = parse(argc, argv);
  const bool under_mpi = options.transport == "mpi" || (options.transport == "nccl" && core::started_by_mpi());
  if (!under_mpi) return tune(options, nullptr);
  if (!options.openmpi_rules.empty()) libraries::let_mpi_algorithms_be_chosen();
  return transports::run_mpi_program(argc, argv, core::source().revision, std::chrono::seconds(60),
                                     [&](auto& mpi) { return tune(options, &mpi); });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tune", [&] { return lockstep::run(argc, argv); });
}
