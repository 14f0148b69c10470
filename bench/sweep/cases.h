// Rows of a sweep: every operation that its flags name, and every algorithm of an operation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/sweep/flags.h"
#include "collectives/backends/backend.h"
#include "collectives/tuning/tuning.h"

namespace lockstep::sweep {

// Out of place; in nccl-tests' order: types, operations, roots, sizes.
std::vector<collectives::Operation> operations_of(const SweepFlags& flags, int num_ranks);

// Backends of a session.
using Backends = std::vector<const backends::Backend*>;

// A user's own plan (own_plans.h), proved by the checker. Its rows have the algorithm "plan:NAME".
using OwnPlan = std::shared_ptr<const plan::Plan>;

// Tables in which algorithm names are looked up, and the user's plans that run beside them.
struct Choices {
  const tuning::Table& table;
  const std::vector<OwnPlan>& own_plans;
};

// Throws a usage Error for an algorithm that the collective does not have, that none of the backends can run, or that
// is impossible at this number of ranks; and for a backend that has none of those that are wanted.
void check_algorithms(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices);

collectives::Operation in_place(collectives::Operation operation);
bool has_in_place(collectives::Kind kind);  // false if input and output blocks differ in size

// Unevenness of an all_to_all_v: each pair's count is drawn from (seed, from, to), uniformly in [1 - spread / 2, 1 +
// spread / 2] times the mean. Reads NCCL_TESTS_ALLTOALLV_SPREAD, 0 to 1, default 1; call it once.
double alltoallv_spread_of_environment();
std::shared_ptr<const collectives::CountMatrix> uneven_counts(std::int64_t mean_count, int num_ranks, double spread,
                                                              std::uint64_t seed);

// An algorithm on a backend.
struct Contender {
  const backends::Backend* backend;
  std::string algorithm;
  OwnPlan own_plan = nullptr;  // set if the algorithm is "plan:NAME"
};

// Algorithms to run for one operation: `all` and `auto` are replaced by the names that they mean, each once, for each
// backend that can run them; then come the user's own plans.
std::vector<Contender> contenders_for(const SweepFlags& flags, const Backends& backends,
                                      const collectives::Operation& operation, int num_ranks, const Choices& choices);

// Collective: all ranks call it together.
backends::Prepared prepare(backends::Endpoint& endpoint, const collectives::Operation& operation,
                           const Contender& contender);

}  // namespace lockstep::sweep
