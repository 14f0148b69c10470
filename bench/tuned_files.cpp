#include "bench/tuned_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "collectives/libraries/nccl_rules.h"
#include "core/error.h"

namespace lockstep::tuned_files {
namespace {

using collectives::Kind;
using tuning::Entry;

using ByRanks = std::map<std::pair<int, int>, std::vector<Entry>>;  // (ranks, hosts)

std::map<Kind, ByRanks> sorted_out(std::span<const Entry> entries, std::string_view transport) {
  std::map<Kind, ByRanks> sorted;
  for (const Entry& entry : entries) {
    if (entry.transport == transport) sorted[entry.kind][{entry.num_ranks, entry.num_hosts}].push_back(entry);
  }
  return sorted;
}

std::int64_t between(std::int64_t a, std::int64_t b) {
  return std::llround(std::sqrt(static_cast<double>(a) * static_cast<double>(b)));
}

}  // namespace

std::vector<Range> ranges_of(std::span<const Entry> points) {
  std::map<std::int64_t, std::string> by_size;
  for (const Entry& point : points) by_size[point.bytes] = point.algorithm;
  std::vector<Range> ranges;
  std::int64_t previous = 0;
  for (const auto& [bytes, algorithm] : by_size) {
    const std::int64_t first = ranges.empty() ? between(bytes, bytes / 2) : between(previous, bytes);
    if (!ranges.empty()) ranges.back().last_bytes = first - 1;
    if (ranges.empty() || ranges.back().algorithm != algorithm) ranges.push_back({first, 0, algorithm});
    ranges.back().last_bytes = between(bytes, 2 * bytes);
    previous = bytes;
  }
  return ranges;
}

namespace {

// Names of the plugin (its parseCollType and parseAlgorithm).
std::string_view nccl_name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "allreduce";
    case Kind::reduce_scatter:
      return "reducescatter";
    case Kind::all_gather:
      return "allgather";
    case Kind::broadcast:
      return "broadcast";
    case Kind::reduce:
      return "reduce";
    default:
      return "";
  }
}

std::string_view plugin_name(std::string_view algorithm) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherNames{
      {{"nvlstree", "nvls_tree"}, {"collnetdirect", "collnet_direct"}, {"collnetchain", "collnet_chain"}}};
  for (const auto& [ours, theirs] : kOtherNames) {
    if (ours == algorithm) return theirs;
  }
  return algorithm;
}

constexpr const char* kNcclHeading =
    "# Fastest of NCCL's algorithms and protocols as Lockstep's tune has measured them, for NCCL's example tuner "
    "plugin\n"
    "# (ext-tuner/example in NCCL's source): NCCL_TUNER_PLUGIN names the plugin, NCCL_TUNER_CONFIG_FILE this file.\n"
    "# Channels 0: NCCL's own number. The plugin as published uses 1 channel for -1 and for calls without a row.\n"
    "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n";

}  // namespace

TunedFile nccl_tuner_file(std::span<const Entry> entries, int channels) {
  TunedFile file{kNcclHeading, {}, 0};
  for (const auto& [kind, by_ranks] : sorted_out(entries, "nccl")) {
    if (nccl_name(kind).empty()) {
      file.left_out.push_back(fmt::format("{}: NCCL's tuner has no choice for it", collectives::name_of(kind)));
      continue;
    }
    for (const auto& [ranks, points] : by_ranks) {
      for (const Range& range : ranges_of(points)) {
        const libraries::NcclChoice choice = libraries::parse_nccl_choice(range.algorithm);
        if (choice.algo.empty() || choice.proto.empty()) continue;  // NCCL's own choice, or half of one
        file.text +=
            fmt::format("{},{},{},{},{},{},{},{},-1,-1\n", nccl_name(kind), range.first_bytes, range.last_bytes,
                        plugin_name(choice.algo), choice.proto, channels, ranks.second, ranks.first);
        ++file.rules;
      }
    }
  }
  return file;
}

namespace {

// enum COLLTYPE of Open MPI 4.0 to 5.0 (ompi/mca/coll/base/coll_base_functions.h). MPI_Alltoallv is missing, because
// its rules cannot depend on the size; our reduce_scatter is MPI_Reduce_scatter_block.
std::optional<int> openmpi_collective(Kind kind) {
  switch (kind) {
    case Kind::all_gather:
      return 0;
    case Kind::all_reduce:
      return 2;
    case Kind::all_to_all:
      return 3;
    case Kind::broadcast:
      return 7;
    case Kind::gather:
      return 9;
    case Kind::reduce:
      return 11;
    case Kind::reduce_scatter:
      return 13;
    case Kind::scatter:
      return 15;
    default:
      return std::nullopt;
  }
}

constexpr int kOwnDecision = 0;
constexpr int kFanout = 4;  // Open MPI's default, with which an algorithm that is chosen by name was measured
constexpr int kSegment = 0;

struct Rule {
  std::int64_t from_bytes;
  int algorithm;
  std::string name;
};

// From size 0 on, as Open MPI requires.
std::vector<Rule> rules_of(const std::vector<Entry>& points, const AlgorithmId& id_of) {
  constexpr std::string_view kPrefix = "library:algorithm=";
  std::vector<Rule> rules{{0, kOwnDecision, "own decision"}};
  const auto add = [&](Rule rule) {
    if (rules.back().algorithm == rule.algorithm) return;
    if (rules.back().from_bytes == rule.from_bytes) rules.pop_back();
    rules.push_back(std::move(rule));
  };
  const std::vector<Range> ranges = ranges_of(points);
  for (const Range& range : ranges) {
    const std::string_view text = range.algorithm;
    if (!text.starts_with(kPrefix)) {
      add({range.first_bytes, kOwnDecision, "own decision"});
      continue;
    }
    const std::string_view name = text.substr(kPrefix.size());
    const std::optional<int> id = id_of(points.front().kind, name);
    if (!id) {
      throw core::usage_error(
          fmt::format("{}: the MPI library has no {} of that name; run tune again with this library", text,
                      collectives::name_of(points.front().kind)));
    }
    add({range.first_bytes, *id, std::string(name)});
  }
  add({ranges.back().last_bytes + 1, kOwnDecision, "own decision"});
  return rules;
}

std::string rules_text(int num_ranks, const std::vector<Rule>& rules) {
  std::string text =
      fmt::format("{} {}  # ranks, rules: bytes from, algorithm, fan-out, segment bytes\n", num_ranks, rules.size());
  for (const Rule& rule : rules) {
    text += fmt::format("{} {} {} {}  # {}\n", rule.from_bytes, rule.algorithm,
                        rule.algorithm == kOwnDecision ? 0 : kFanout, kSegment, rule.name);
  }
  return text;
}

// Rules for a number of ranks apply up to the next number with rules, and the smallest number's to all below: so
// numbers that were not measured get rules of their own, which leave the decision to Open MPI.
std::string collective_text(Kind kind, int id, const ByRanks& by_ranks, const AlgorithmId& id_of) {
  const std::vector<Rule> none{{0, kOwnDecision, "own decision"}};
  std::map<int, std::vector<Rule>> by_size{{0, none}};
  for (const auto& [ranks, points] : by_ranks) {
    by_size[ranks.first] = rules_of(points, id_of);
    by_size.try_emplace(ranks.first + 1, none);
  }
  std::string text = fmt::format("{}  # {}\n{}  # numbers of ranks\n", id, collectives::name_of(kind), by_size.size());
  for (const auto& [num_ranks, rules] : by_size) text += rules_text(num_ranks, rules);
  return text;
}

constexpr const char* kRulesHeading =
    "# Fastest of Open MPI's algorithms as Lockstep's tune has measured them, for Open MPI 4.x and 5.0:\n"
    "# mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename THIS_FILE\n";

}  // namespace

TunedFile openmpi_rules_file(std::span<const Entry> entries, const AlgorithmId& id_of) {
  TunedFile file;
  int collectives = 0;
  std::string body;
  for (const auto& [kind, by_ranks] : sorted_out(entries, "mpi")) {
    const std::optional<int> id = openmpi_collective(kind);
    if (!id) {
      file.left_out.push_back(
          fmt::format("{}: Open MPI's rules cannot choose its algorithm by size", collectives::name_of(kind)));
      continue;
    }
    ++collectives;
    body += collective_text(kind, *id, by_ranks, id_of);
    for (const auto& [ranks, points] : by_ranks) {
      const std::vector<Rule> rules = rules_of(points, id_of);
      file.rules += static_cast<int>(
          std::count_if(rules.begin(), rules.end(), [](const Rule& rule) { return rule.algorithm != kOwnDecision; }));
    }
  }
  file.text = fmt::format("{}{}  # collectives\n{}", kRulesHeading, collectives, body);
  return file;
}

}  // namespace lockstep::tuned_files
