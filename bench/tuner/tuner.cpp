#include "bench/tuner/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "bench/sweep/programs.h"
#include "bench/sweep/sweep.h"
#include "collectives/algorithms/algorithm.h"
#include "core/provenance.h"
#include "core/size.h"
#include "core/statistics.h"

namespace lockstep::tuner {
namespace {

using collectives::Kind;

// The candidates of one point, fastest found so far. A rival must be faster by more than the noise of equals, so that
// the table does not flicker between runs: the catalogue's order breaks ties.
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
  auto flags = std::get<sweep::SweepFlags>(sweep::parse_sweep_flags(kind, static_cast<int>(argv.size()), argv.data()));
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
    std::printf("%-16s %3d ranks %9s  %-24s %10.2f us\n", std::string(collectives::name_of(std::get<0>(key))).c_str(),
                std::get<1>(key), core::format_size(std::get<2>(key)).c_str(), best.algorithm.c_str(), best.median_us);
  }
}

}  // namespace

int tune(const TunerOptions& options, transports::MpiWorld* mpi) {
  const std::string machine = core::this_machine().fingerprint();
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
  std::printf("written: %s\n", options.path.c_str());
  return worst;
}

}  // namespace lockstep::tuner
