#include "collectives/executors/direct_executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/verify.h"

namespace lockstep::executors {
namespace {

using collectives::Operation;
using core::Sharing;
using transports::LocalGroup;
using transports::LocalOptions;
using transports::LocalWorld;

std::shared_ptr<const collectives::CountMatrix> uneven_matrix(int num_ranks, std::int64_t count) {
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = num_ranks;
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) matrix->counts.push_back(count * ((from + 2 * to) % 4));
  }
  return matrix;
}

// What one rank needs to run an operation: buffers in shared memory, placed as the collective wants them in place.
struct RankBuffers {
  std::byte* input;
  std::byte* output;
};

RankBuffers allocate(LocalWorld& world, const Operation& operation) {
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
  int num_ranks;
  std::int64_t count;
  core::DType dtype = core::DType::f32;
  core::ReduceOp op = core::ReduceOp::sum;
  bool in_place = false;
  int rounds = 3;
  DirectOptions options{};
  Sharing sharing = Sharing::threads;
};

void run_rank(LocalWorld& world, const plan::Plan& plan, const Operation& operation, const Case& c) {
  const RankBuffers buffers = allocate(world, operation);
  const collectives::Verifier verifier(operation, world.num_ranks(), 11);
  const auto collective = make_direct(plan, operation, world, c.options);
  for (int round = 0; round < c.rounds; ++round) {
    verifier.fill_poison(world.rank(), static_cast<std::uint64_t>(round), buffers.output);
    verifier.fill_input(world.rank(), static_cast<std::uint64_t>(round), buffers.input);
    if (round % 2 == 0) world.barrier();
    collective->run(buffers.input, buffers.output);
    const auto wrong = verifier.count_wrong(world.rank(), static_cast<std::uint64_t>(round), buffers.output);
    if (wrong != 0) {
      throw core::Error(core::Failure::wrong_data, plan.algorithm + " rank " + std::to_string(world.rank()) + ": " +
                                                       std::to_string(wrong) + " wrong");
    }
  }
}

void run_case(const Case& c) {
  const algorithms::Choice choice = algorithms::parse_choice(c.algorithm->kind, c.algorithm->name);
  if (algorithms::refusal(choice, c.num_ranks, 0)) return;
  for (int root : {0, c.num_ranks - 1}) {
    if (root > 0 && !collectives::has_root(c.algorithm->kind)) continue;
    const plan::Plan plan = algorithms::make_plan(choice, c.num_ranks, root);
    Operation operation{c.algorithm->kind, c.count, c.dtype, c.op, root, c.in_place, nullptr};
    if (operation.kind == collectives::Kind::all_to_all_v) operation.matrix = uneven_matrix(c.num_ranks, c.count);
    LocalOptions options;
    options.num_ranks = c.num_ranks;
    options.sharing = c.sharing;
    options.deadline = std::chrono::milliseconds(20000);
    LocalGroup group(options);
    try {
      group.run([&](LocalWorld& world) { run_rank(world, plan, operation, c); });
    } catch (const core::Error& error) {
      ADD_FAILURE() << name_of(operation.kind) << ' ' << plan.algorithm << " ranks " << c.num_ranks << " root " << root
                    << " count " << c.count << ' ' << core::name_of(c.dtype) << ' ' << core::name_of(c.op)
                    << (c.in_place ? " in place: " : " out of place: ") << error.what();
    }
  }
}

bool runs_in_place(const algorithms::Algorithm& algorithm) {
  return algorithm.kind != collectives::Kind::all_to_all_v;  // block sizes differ between input and output
}

TEST(DirectExecutor, EveryAlgorithmGivesExactBitsForEveryNumberOfRanks) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      for (bool in_place : {false, true}) {
        if (in_place && !runs_in_place(algorithm)) continue;
        run_case({.algorithm = &algorithm, .num_ranks = ranks, .count = 1000, .in_place = in_place});
      }
    }
  }
}

TEST(DirectExecutor, InPlaceReadsAndSegmentsGiveExactBits) {
  DirectOptions options;
  options.stage_below_bytes = 0;
  options.segment_bytes = 256;
  options.bypass_above_bytes = 0;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int ranks : {2, 3, 4, 7, 8}) {
      for (bool in_place : {false, true}) {
        if (in_place && !runs_in_place(algorithm)) continue;
        run_case(
            {.algorithm = &algorithm, .num_ranks = ranks, .count = 5000, .in_place = in_place, .options = options});
      }
    }
  }
}

TEST(DirectExecutor, CountsBelowTheRankCountAndAllTypesAndOperations) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (std::int64_t count : {0, 1, 3}) run_case({.algorithm = &algorithm, .num_ranks = 5, .count = count});
  }
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (core::DType dtype : core::all_dtypes()) {
      if (!collectives::has_op(algorithm.kind)) {
        run_case({.algorithm = &algorithm, .num_ranks = 3, .count = 100, .dtype = dtype});
        continue;
      }
      for (core::ReduceOp op : core::all_reduce_ops()) {
        run_case({.algorithm = &algorithm, .num_ranks = 3, .count = 100, .dtype = dtype, .op = op});
      }
    }
  }
}

TEST(DirectExecutor, RunsOnForkedProcesses) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    run_case({.algorithm = &algorithm, .num_ranks = 4, .count = 3000, .sharing = Sharing::processes});
  }
}

}  // namespace
}  // namespace lockstep::executors
