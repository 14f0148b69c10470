#include "bench/moe_bench/moe.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "bench/program/program.h"
#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/backend.h"
#include "core/error.h"

namespace lockstep::experts_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<ExpertsFlags>;

std::vector<double> numbers_of(const FlagValue& value, double max) {
  std::vector<double> numbers;
  for (const FlagValue& part : value.list()) numbers.push_back(part.number_from(0, max));
  return numbers;
}

std::string algorithm_of(const FlagValue& value) {
  if (value.text == "auto" || backends::asks_library(value.text)) return value.text;
  return value.parsed_by([](const std::string& text) {
    algorithms::parse_choice(collectives::Kind::all_to_all, text);
    return text;
  });
}

const std::array kFlagsOfLayer{
    Flag{"--experts", "8", "experts of the layer, a list",
         [](ExpertsFlags& f, const FlagValue& v) { f.experts = program::integer_list(v, 1, 1024); }},
    Flag{"--top-k", "2", "experts per token, a list",
         [](ExpertsFlags& f, const FlagValue& v) { f.top_k = program::integer_list(v, 1, 16); }},
    Flag{
        "--capacity", "0",
        "capacity factors, a list: rows that an expert accepts from a rank over an even share; other rows are dropped; "
        "0: no limit (dropless)",
        [](ExpertsFlags& f, const FlagValue& v) { f.capacity = numbers_of(v, 1e3); }},
    Flag{"--skew", "1",
         "imbalance of the router, a list: rows of the most loaded expert over an even share; other experts share the "
         "rest; 0: a random router's",
         [](ExpertsFlags& f, const FlagValue& v) { f.skew = numbers_of(v, 1e3); }},
    Flag{"--loads", "",
         "loads of all experts, a list, instead of --skew; mini_train prints them for its trained router",
         [](ExpertsFlags& f, const FlagValue& v) { f.loads = numbers_of(v, 1e12); }},
    Flag{"--tokens", "512", "tokens per rank",
         [](ExpertsFlags& f, const FlagValue& v) { f.tokens = v.integer(1, 1 << 20); }},
    Flag{"--hidden", "256", "hidden size",
         [](ExpertsFlags& f, const FlagValue& v) { f.hidden = v.integer(1, 1 << 16); }},
    Flag{"--ffn", "1024", "width of an expert",
         [](ExpertsFlags& f, const FlagValue& v) { f.inner = v.integer(1, 1 << 18); }},
    Flag{"--shared", "0",
         "width of the shared experts, which every token uses and whose work overlaps with the dispatch",
         [](ExpertsFlags& f, const FlagValue& v) { f.shared = v.integer(0, 1 << 18); }},
    Flag{"--dtype", "f32", "dtype of weights and activations: f32 or bf16",
         [](ExpertsFlags& f, const FlagValue& v) { f.dtype = step_bench::dtype_of(v); }},
};

const std::array kFlagsOfRun{
    Flag{"--ep", "1,2,4", "expert-parallel ranks, a list",
         [](ExpertsFlags& f, const FlagValue& v) { f.ranks = program::integer_list(v, 1, 64); }},
    Flag{"--algo", "auto", "algorithm of all-to-alls with blocks of equal size (docs/adding.md)",
         [](ExpertsFlags& f, const FlagValue& v) { f.algorithm = algorithm_of(v); }},
};

void check(const Case& bench_case) {
  if (bench_case.experts % bench_case.ranks != 0) {
    throw core::usage_error(
        fmt::format("--ep {}: does not divide --experts {}; allowed: a divisor", bench_case.ranks, bench_case.experts));
  }
  if (bench_case.top_k > bench_case.experts) {
    throw core::usage_error(fmt::format("--top-k {}: more than the experts; allowed: at most --experts, {}",
                                        bench_case.top_k, bench_case.experts));
  }
  if (!bench_case.loads.empty() && bench_case.loads.size() != static_cast<std::size_t>(bench_case.experts)) {
    throw core::usage_error(fmt::format("--loads: {} loads; allowed: one for each of --experts {}",
                                        bench_case.loads.size(), bench_case.experts));
  }
  // A token uses an expert at most once.
  const double most = static_cast<double>(bench_case.experts) / bench_case.top_k;
  for (const double target : bench_case.targets()) {
    if (target * bench_case.top_k <= 1) continue;
    throw core::usage_error(
        fmt::format("--skew or --loads: {:g} times an even share of {} experts is impossible with {} different ones "
                    "per token; allowed: at most {:g} times",
                    target * bench_case.experts, bench_case.experts, bench_case.top_k, most));
  }
}

}  // namespace

std::vector<double> Case::targets() const {
  if (!loads.empty()) {
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    std::vector<double> shares = loads;
    for (double& share : shares) share = sum > 0 ? share / sum : 1.0 / experts;
    return shares;
  }
  if (skew == 0 || experts == 1) return {};
  const double first = skew / experts;
  std::vector<double> shares(static_cast<std::size_t>(experts), (1 - first) / (experts - 1));
  shares.front() = first;
  return shares;
}

std::vector<Case> cases_of(const ExpertsFlags& flags) {
  std::vector<Case> cases;
  const std::vector<double> skews = flags.loads.empty() ? flags.skew : std::vector<double>{0};
  for (const int experts : flags.experts) {
    for (const int top_k : flags.top_k) {
      for (const double capacity : flags.capacity) {
        for (const double skew : skews) {
          for (const int ranks : flags.ranks) {
            cases.push_back({experts, top_k, ranks, capacity, skew, flags.loads});
            check(cases.back());
          }
        }
      }
    }
  }
  return cases;
}

ExpertsFlags parse_experts_flags(int argc, const char* const* argv) {
  ExpertsFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(
      flags.program +
      ": time and bytes of a mixture of experts on expert-parallel ranks, by part, and the cost of an uneven router.");
  parse_part({.layers = "Layer", .rounds = "9", .warmup_rounds = "2", .places = false}, line, argc, argv, kFlagsOfLayer,
             kFlagsOfRun, flags);
  cases_of(flags);
  return flags;
}

}  // namespace lockstep::experts_bench
