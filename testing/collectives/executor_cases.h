// For tests: plans run by executors with exact inputs, and the cases that executors have to pass on every transport.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/executors.h"
#include "collectives/verify.h"

namespace lockstep::collectives {

// Verifiers for tests with many small cases, in which making the patterns would take longer than the collectives do.

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

namespace lockstep::executors {

// Runs the catalogue through the direct executor: shared by its tests.

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
struct SharedBuffers {
  std::byte* input;
  std::byte* output;
};

inline SharedBuffers allocate(LocalWorld& world, const Operation& operation) {
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
  const SharedBuffers buffers = allocate(world, operation);
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

// For tests: one rank's part of running a plan over a transport with exact inputs, and the cases that every transport
// has to pass.

inline collectives::Operation make_operation(collectives::Kind kind, int num_ranks, std::int64_t count,
                                             core::DType dtype = core::DType::f32,
                                             core::ReduceOp op = core::ReduceOp::sum) {
  collectives::Operation operation{kind, count, dtype, op, 0, false, nullptr};
  if (kind == collectives::Kind::all_to_all_v) operation.matrix = uneven_matrix(num_ranks, count);
  return operation;
}

// A rank's input and output, separate, or overlapping as the collective requires in place.
class RankBuffers {
 public:
  RankBuffers(const collectives::Operation& operation, int num_ranks, int rank) {
    if (operation.in_place) {
      const auto layout = in_place_layout(operation, num_ranks, rank);
      memory_.resize(static_cast<std::size_t>(layout.buffer_bytes) + 1);
      input_ = memory_.data() + layout.input_at;
      output_ = memory_.data() + layout.output_at;
      return;
    }
    const auto inputs = static_cast<std::size_t>((input_bytes(operation, num_ranks, rank) + 63) / 64 * 64);
    const auto outputs = static_cast<std::size_t>(output_bytes(operation, num_ranks, rank));
    memory_.resize(inputs + outputs + 1);
    input_ = memory_.data();
    output_ = memory_.data() + inputs;
  }
  std::byte* input() { return input_; }
  std::byte* output() { return output_; }

 private:
  std::vector<std::byte> memory_;
  std::byte* input_;
  std::byte* output_;
};

// Runs a collective several times without a barrier in between; returns the total number of wrong elements.
inline std::int64_t count_wrong_results(collectives::Collective& collective, const collectives::Operation& operation,
                                        int num_ranks, int rank, std::uint64_t rounds = 3) {
  RankBuffers buffers(operation, num_ranks, rank);
  const collectives::Verifier verifier = collectives::verifier_for_tests(operation, num_ranks);
  std::int64_t wrong = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    verifier.fill_poison(rank, round, buffers.output());
    verifier.fill_input(rank, round, buffers.input());
    collective.run(buffers.input(), buffers.output());
    wrong += verifier.count_wrong(rank, round, buffers.output());
  }
  return wrong;
}

// Calls use(plan, operation, options) for every algorithm of the catalogue that supports this number of ranks: roots at
// both ends, in place and out of place, counts below the number of ranks, segments that divide no message evenly.
template <class Use>
void for_each_message_case(int num_ranks, const Use& use) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    const algorithms::Choice choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
    for (int root : {0, num_ranks - 1}) {
      if (root > 0 && !collectives::has_root(algorithm.kind)) continue;
      if (algorithms::refusal(choice, num_ranks, root)) continue;
      const plan::Plan plan = algorithms::make_plan(choice, num_ranks, root);
      for (std::int64_t count : {0, 1, 3, 1001}) {
        for (bool in_place : {false, true}) {
          // all_to_all_v cannot run in place, as its input and output blocks differ in size.
          if (in_place && algorithm.kind == collectives::Kind::all_to_all_v) continue;
          collectives::Operation operation = make_operation(algorithm.kind, num_ranks, count);
          operation.root = root;
          operation.in_place = in_place;
          use(plan, operation,
              MessageOptions{
                  .segment_bytes = 1000, .recv_window = 2, .send_window = 2, .timeout = std::chrono::seconds(5)});
          if (count == 1001) use(plan, operation, MessageOptions{});
        }
      }
    }
  }
}

// The same for every dtype and reduction, by one algorithm of each collective.
template <class Use>
void for_each_message_type(int num_ranks, const Use& use) {
  for (collectives::Kind kind : collectives::all_kinds()) {
    for (const algorithms::Algorithm* algorithm : algorithms::algorithms_of(kind)) {
      const algorithms::Choice choice = algorithms::parse_choice(kind, algorithm->name);
      if (algorithms::refusal(choice, num_ranks, 0)) continue;
      const plan::Plan plan = algorithms::make_plan(choice, num_ranks, 0);
      for (core::DType dtype : core::all_dtypes()) {
        for (core::ReduceOp op : core::all_reduce_ops()) {
          if (op != core::ReduceOp::sum && !collectives::has_op(kind)) continue;
          use(plan, make_operation(kind, num_ranks, 77, dtype, op), MessageOptions{});
        }
      }
      break;
    }
  }
}

inline std::string describe(const collectives::Operation& operation, int num_ranks) {
  return std::string(name_of(operation.kind)) + ", ranks " + std::to_string(num_ranks) + ", root " +
         std::to_string(operation.root) + ", count " + std::to_string(operation.count) + ' ' +
         std::string(core::name_of(operation.dtype)) + ' ' + std::string(core::name_of(operation.op)) +
         (operation.in_place ? ", in place" : ", out of place");
}

inline std::string describe(const plan::Plan& plan, const collectives::Operation& operation) {
  return plan.algorithm + ' ' + describe(operation, plan.num_ranks);
}

}  // namespace lockstep::executors
