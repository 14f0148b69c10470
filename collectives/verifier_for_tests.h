// Verifiers for tests with many small cases, in which making the patterns would take longer than the collectives do.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "collectives/verify.h"

namespace lockstep::collectives {

// A verifier that shares patterns with all others in this process that reduce alike. Any thread may call it.
inline Verifier verifier_for_tests(const Operation& operation, int num_ranks) {
  using Alike = std::tuple<bool, core::DType, core::ReduceOp, int, std::size_t>;
  static std::mutex mutex;
  static std::map<Alike, std::shared_ptr<const Patterns>> kept;
  constexpr std::uint64_t kSeed = 11;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Patterns>& patterns =
      kept[{has_op(operation.kind), operation.dtype, operation.op, num_ranks, pattern_period(operation)}];
  if (!patterns) patterns = std::make_shared<const Patterns>(make_patterns(operation, num_ranks, kSeed));
  return {operation, patterns, kSeed};
}

}  // namespace lockstep::collectives
