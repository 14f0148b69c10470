#include "bench/sweep/cases.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "bench/sweep/result.h"
#include "bench/sweep/sizes.h"
#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep::sweep {

using collectives::Kind;
using collectives::Operation;

namespace {

bool can_run(const backends::Backend& backend, const std::string& algorithm) {
  if (algorithm == "all" || algorithm == "auto") return true;
  return backends::asks_library(algorithm) ? backend.has_library : backend.has_plans();
}

core::Error refused(const std::string& algorithm, const backends::Backend& backend) {
  const char* const what = backends::asks_library(algorithm) ? "plans only; allowed: all, auto, or an algorithm's name"
                                                             : "its library's own collectives only; allowed: library";
  return core::usage_error("--algo " + algorithm + ": the transport " + std::string(backend.name) + " runs " + what);
}

std::string automatic_choice(const backends::Backend& backend, const Operation& operation, int num_ranks,
                             const tuning::Table& table) {
  if (backend.auto_is_library() || !backend.has_plans()) return std::string(backends::kLibrary);
  const tuning::Query query{backend.name, operation.kind, num_ranks, row_bytes(operation, num_ranks)};
  return tuning::measured_choice(table, query).value_or(tuning::rule_of_thumb(query));
}

// Algorithms that the flags name and this backend runs, each once.
std::vector<std::string> algorithms_of(const SweepFlags& flags, const backends::Backend& backend,
                                       const Operation& operation, int num_ranks, const tuning::Table& table) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& wanted : flags.algorithms) {
    if (wanted == "all") {
      for (const std::string& name : backends::algorithm_names(backend, operation.kind, num_ranks)) add(name);
    } else if (wanted == "auto") {
      add(automatic_choice(backend, operation, num_ranks, table));
    } else if (can_run(backend, wanted)) {
      add(wanted);
    }
  }
  return names;
}

}  // namespace

std::vector<Operation> operations_of(const SweepFlags& flags, int num_ranks) {
  const double spread = flags.kind == Kind::all_to_all_v ? alltoallv_spread_of_environment() : 0;
  std::vector<Operation> operations;
  for (core::DType dtype : flags.dtypes) {
    for (core::ReduceOp op : flags.ops) {
      for (int root : roots_at(flags, num_ranks)) {
        for (std::int64_t size_bytes : sizes_of(flags.sizes)) {
          Operation operation;
          operation.kind = flags.kind;
          operation.count = block_count(flags.kind, size_bytes, dtype, num_ranks);
          operation.dtype = dtype;
          operation.op = op;
          operation.root = root;
          if (flags.kind == Kind::all_to_all_v) {
            operation.matrix = uneven_counts(operation.count, num_ranks, spread, flags.seed);
          }
          operations.push_back(std::move(operation));
        }
      }
    }
  }
  return operations;
}

void check_algorithms(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices) {
  for (const std::string& name : flags.algorithms) {
    if (std::none_of(backends.begin(), backends.end(), [&](const auto* one) { return can_run(*one, name); })) {
      throw refused(name, *backends.front());
    }
    if (name == "all" || name == "auto" || backends::asks_library(name)) continue;
    const algorithms::Choice choice = algorithms::parse_choice(flags.kind, name);
    if (const auto why = algorithms::refusal(choice, num_ranks, 0)) {
      throw core::usage_error("--algo " + name + ": " + *why);
    }
  }
  for (const auto* backend : backends) {
    const auto& names = flags.algorithms;
    if (!choices.own_plans.empty() && backend->has_plans()) continue;
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return can_run(*backend, name); })) {
      throw refused(names.front(), *backend);
    }
  }
}

collectives::Operation in_place(collectives::Operation operation) {
  operation.in_place = true;
  return operation;
}

bool has_in_place(Kind kind) {
  return kind != Kind::all_to_all_v;
}

double alltoallv_spread_of_environment() {
  const char* text = std::getenv("NCCL_TESTS_ALLTOALLV_SPREAD");  // NOLINT(concurrency-mt-unsafe): before any rank
  if (text == nullptr) return 1;
  const std::string_view value(text);
  double spread = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), spread);
  if (error != std::errc{} || end != value.data() + value.size() || !(spread >= 0 && spread <= 1)) {
    throw core::usage_error("NCCL_TESTS_ALLTOALLV_SPREAD=" + std::string(value) + ": allowed: a number from 0 to 1");
  }
  return spread;
}

std::shared_ptr<const collectives::CountMatrix> uneven_counts(std::int64_t mean_count, int num_ranks, double spread,
                                                              std::uint64_t seed) {
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = num_ranks;
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to);
      const double uniform = static_cast<double>(core::hash64(seed, pair) >> 11) * 0x1p-53;
      const double share = 1 + spread * (uniform - 0.5);
      matrix->counts.push_back(static_cast<std::int64_t>(static_cast<double>(mean_count) * share));
    }
  }
  return matrix;
}

std::vector<Contender> contenders_for(const SweepFlags& flags, const Backends& backends, const Operation& operation,
                                      int num_ranks, const Choices& choices) {
  std::vector<Contender> contenders;
  for (const auto* backend : backends) {
    for (const std::string& name : algorithms_of(flags, *backend, operation, num_ranks, choices.table)) {
      contenders.push_back({backend, name});
    }
    if (!backend->has_plans()) continue;
    for (const OwnPlan& plan : choices.own_plans) contenders.push_back({backend, plan->algorithm, plan});
  }
  return contenders;
}

backends::Prepared prepare(backends::Endpoint& endpoint, const Operation& operation, const Contender& contender) {
  if (contender.own_plan) return endpoint.prepare_plan(operation, *contender.own_plan);
  return endpoint.prepare(operation, contender.algorithm);
}

}  // namespace lockstep::sweep
