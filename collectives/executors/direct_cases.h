// Runs the catalogue through the direct executor: shared by its tests.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/direct_executor.h"
#include "collectives/verifier_for_tests.h"

namespace lockstep::executors {

using collectives::Operation;
using core::Sharing;
using transports::LocalGroup;
using transports::LocalOptions;
using transports::LocalWorld;

inline std::shared_ptr<const collectives::CountMatrix> uneven_matrix(int num_ranks, std::int64_t count) {
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = num_ranks;
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) matrix->counts.push_back(count * ((from + 2 * to) % 4));
  }
  return matrix;
}

// One rank's buffers for an operation, in shared memory, overlapping as the collective requires in place.
struct RankBuffers {
  std::byte* input;
  std::byte* output;
};

inline RankBuffers allocate(LocalWorld& world, const Operation& operation) {
  if (operation.in_place) {
    const auto layout = in_place_layout(operation, world.num_ranks(), world.rank());
    std::byte* buffer = world.arena().allocate(static_cast<std::size_t>(layout.buffer_bytes));
    return {buffer + layout.input_at, buffer + layout.output_at};
  }
  const auto inputs = static_cast<std::size_t>(input_bytes(operation, world.num_ranks(), world.rank()));
  const auto outputs = static_cast<std::size_t>(output_bytes(operation, world.num_ranks(), world.rank()));
  return {world.arena().allocate(inputs), world.arena().allocate(outputs)};
}

struct Case {
  const algorithms::Algorithm* algorithm;
  std::int64_t count;
  core::DType dtype = core::DType::f32;
  core::ReduceOp op = core::ReduceOp::sum;
  bool in_place = false;
  DirectOptions options{};
};

// Runs a collective a few times. Throws Error(wrong_data) that names the case.
inline void expect_exact(LocalWorld& world, const plan::Plan& plan, const Operation& operation,
                         collectives::Collective& collective) {
  constexpr int kRounds = 3;
  const RankBuffers buffers = allocate(world, operation);
  const collectives::Verifier verifier = collectives::verifier_for_tests(operation, world.num_ranks());
  for (int round = 0; round < kRounds; ++round) {
    verifier.fill_poison(world.rank(), static_cast<std::uint64_t>(round), buffers.output);
    verifier.fill_input(world.rank(), static_cast<std::uint64_t>(round), buffers.input);
    if (round % 2 == 0) world.barrier();
    collective.run(buffers.input, buffers.output);
    const auto wrong = verifier.count_wrong(world.rank(), static_cast<std::uint64_t>(round), buffers.output);
    if (wrong == 0) continue;
    throw core::Error(core::Failure::wrong_data,
                      std::string(name_of(operation.kind)) + ' ' + plan.algorithm + ", rank " +
                          std::to_string(world.rank()) + ", root " + std::to_string(operation.root) + ", " +
                          std::to_string(operation.count) + ' ' + std::string(core::name_of(operation.dtype)) + ' ' +
                          std::string(core::name_of(operation.op)) +
                          (operation.in_place ? " in place: " : " out of place: ") + std::to_string(wrong) + " wrong");
  }
}

inline void run_rank(LocalWorld& world, const plan::Plan& plan, const Operation& operation,
                     const DirectOptions& options) {
  const auto collective = make_direct(plan, operation, world, options);
  expect_exact(world, plan, operation, *collective);
}

// Calls run(plan, operation, options) for every root.
template <class Run>
void run_case(LocalWorld& world, const Case& c, const Run& run) {
  const int ranks = world.num_ranks();
  const algorithms::Choice choice = algorithms::parse_choice(c.algorithm->kind, c.algorithm->name);
  if (algorithms::refusal(choice, ranks, 0)) return;
  for (int root : {0, ranks - 1}) {
    if (root > 0 && !collectives::has_root(c.algorithm->kind)) continue;
    Operation operation{c.algorithm->kind, c.count, c.dtype, c.op, root, c.in_place, nullptr};
    if (operation.kind == collectives::Kind::all_to_all_v) operation.matrix = uneven_matrix(ranks, c.count);
    run(algorithms::make_plan(choice, ranks, root), operation, c.options);
  }
}

// Runs all cases in sequence on the same ranks. Returns the error text, empty if there was none.
inline std::string run_cases(int num_ranks, const std::vector<Case>& cases, Sharing sharing = Sharing::threads,
                             std::optional<transports::LinkSpec> link = {}) {
  LocalOptions options;
  options.num_ranks = num_ranks;
  options.sharing = sharing;
  options.link = link;
  options.memory_bytes_per_rank = std::size_t{256} << 20;
  options.deadline = std::chrono::milliseconds(60000);
  LocalGroup group(options);
  try {
    group.run([&](LocalWorld& world) {
      const auto run = [&](const auto&... of_case) { run_rank(world, of_case...); };
      for (const Case& c : cases) run_case(world, c, run);
    });
  } catch (const core::Error& error) {
    return std::to_string(num_ranks) + " ranks: " + error.what();
  }
  return "";
}

inline bool runs_in_place(const algorithms::Algorithm& algorithm) {
  return algorithm.kind != collectives::Kind::all_to_all_v;  // block sizes differ between input and output
}

inline std::vector<Case> all_algorithms(std::int64_t count, const DirectOptions& options) {
  std::vector<Case> cases;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (bool in_place : {false, true}) {
      if (in_place && !runs_in_place(algorithm)) continue;
      cases.push_back({.algorithm = &algorithm, .count = count, .in_place = in_place, .options = options});
    }
  }
  return cases;
}

}  // namespace lockstep::executors
