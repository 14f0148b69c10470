// moe_bench: its flags, a rank of a mixture of experts, its rows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/step/part.h"
#include "core/dtype.h"
#include "core/statistics.h"

namespace lockstep::experts_bench {

// The command line of moe_bench.

struct ExpertsFlags : step_bench::PartFlags {
  std::vector<int> experts{8};
  std::vector<int> top_k{2};
  std::vector<int> ranks{1, 2, 4};
  std::vector<double> capacity{0};
  std::vector<double> skew{1};
  std::vector<double> loads;  // instead of a skew
  std::int64_t tokens = 512;  // per rank
  std::int64_t hidden = 256;
  std::int64_t inner = 1024;
  std::int64_t shared = 0;  // total width of the shared experts
  core::DType dtype = core::DType::f32;
  std::string algorithm = "auto";
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ExpertsFlags parse_experts_flags(int argc, const char* const* argv);

struct Case {
  int experts = 8;
  int top_k = 2;
  int ranks = 1;
  double capacity_factor = 0;  // 0: dropless
  double skew = 1;             // rows of the first expert over an even share; 0: a random router's
  std::vector<double> loads = {};

  // Shares of all copies that the router is to send to the experts; empty: no targets.
  std::vector<double> targets() const;
};
// Throws a usage Error if a case is impossible.
std::vector<Case> cases_of(const ExpertsFlags& flags);

// The shares of a rank's time.
enum class Share : std::uint8_t { router, permute, dispatch, shared, experts, combine, unpermute };
inline constexpr std::array kShares{"router", "permute", "dispatch", "shared", "experts", "combine", "unpermute"};

// Runs one case on its ranks: timed in every round, part by part and with exchanges overlapping the shared
// experts, and checked in every round.

using step_bench::Mode;

struct Result {
  step_bench::PartResult part = {};
  // Time of the experts' own work, forward and backward, run serially: medians over rounds.
  double experts_slowest_us = 0;  // on the slowest rank
  double experts_mean_us = 0;     // mean over ranks
  std::int64_t most_rows = 0;     // on the rank with most
  double mean_rows = 0;
  double most_load = 0;  // copies for the most loaded expert over an even share
  std::int64_t copies = 0;
  std::int64_t dropped = 0;  // copies, over all ranks

  // On the slowest rank in the round of the median, forward and backward.
  double share_us(Mode mode, Share share) const;
  double dropped_share() const { return static_cast<double>(dropped) / static_cast<double>(copies); }
  // In a forward and a backward, mean over ranks.
  double sent_bytes() const { return part.sent_bytes() / static_cast<double>(part.ranks.size()); }
  double formula_bytes() const { return part.formula_bytes() / static_cast<double>(part.ranks.size()); }
  // All ranks send exactly the copies of tokens for other ranks, four times, and counts.
  bool sent_as_formula() const { return part.sent_bytes() == part.formula_bytes(); }
  bool is_wrong() const { return part.wrong() != 0 || !sent_as_formula(); }
};

Result run_case(const ExpertsFlags& flags, const Case& bench_case);

}  // namespace lockstep::experts_bench
