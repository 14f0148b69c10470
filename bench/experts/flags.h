// The command line of moe_bench.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"

namespace lockstep::experts_bench {

struct ExpertsFlags : program::Invocation {
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
  std::optional<transports::LinkSpec> link;
  int threads = 1;
  int rounds = 9;
  int warmup_rounds = 2;
  std::chrono::milliseconds timeout{60'000};
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ExpertsFlags parse_experts_flags(int argc, const char* const* argv);

struct Case {
  int experts = 8;
  int top_k = 2;
  int ranks = 1;
  double capacity_factor = 0;  // 0: dropless
  double skew = 1;             // rows of the first expert over an even share; 0: that of a random router
  std::vector<double> loads = {};

  // Shares of all copies that the router is to send to the experts; empty: no targets.
  std::vector<double> targets() const;
};
// Throws a usage Error if a case is impossible.
std::vector<Case> cases_of(const ExpertsFlags& flags);

}  // namespace lockstep::experts_bench
