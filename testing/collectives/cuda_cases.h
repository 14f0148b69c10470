// The catalogue on ranks whose buffers are in device memory: shared by the tests on GPUs and on emulated grids.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/executors/cuda/cuda_ranks.h"
#include "core/device.h"
#include "testing/collectives/executor_cases.h"
#include "testing/core/fixtures.h"

namespace lockstep::executors {

// A rank on a device that it shares with all others; ranks are threads of one process.
struct TestRank {
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
  std::unique_ptr<CudaRanks> ranks;
};
using MakeRank = std::function<TestRank(LocalWorld& world, const CudaOptions& options)>;

inline TestRank test_rank_on(std::unique_ptr<core::Device> device, LocalWorld& world, const CudaOptions& options) {
  TestRank rank{.device = std::move(device), .stream = nullptr, .ranks = nullptr};
  rank.stream = rank.device->make_stream();
  const auto reach = [&world](std::byte* mine) { return transports::all_gather_value(world, mine); };
  rank.ranks = std::make_unique<CudaRanks>(world, *rank.device, *rank.stream, reach, options);
  return rank;
}

// Ranks whose kernels write to each other's memory leave together, also after a failure.
class ExitDoor {
 public:
  explicit ExitDoor(int num_ranks) : missing_(num_ranks) {}
  void leave() {
    --missing_;
    while (missing_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> missing_;
};

// Runs body(world, rank) on every rank. Returns the error text, empty if there was none.
inline std::string run_ranks_on(int num_ranks, const MakeRank& make_rank, const CudaOptions& options,
                                const std::function<void(LocalWorld&, TestRank&)>& body) {
  LocalOptions local;
  local.num_ranks = num_ranks;
  local.bind = false;
  // Kernels of the group time out first.
  local.deadline = std::max<std::chrono::milliseconds>(
      std::chrono::duration_cast<std::chrono::milliseconds>(2 * options.timeout), std::chrono::seconds(5));
  LocalGroup group(local);
  ExitDoor door(num_ranks);
  try {
    group.run([&](LocalWorld& world) {
      TestRank rank = make_rank(world, options);
      const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { door.leave(); });
      body(world, rank);
    });
  } catch (const core::Error& error) {
    return std::to_string(num_ranks) + " ranks: " + error.what();
  }
  return "";
}

// A rank's input and output on the device, shifted by `shift_bytes` from alignment, and their contents on the host.
class TestBuffers {
 public:
  TestBuffers(core::Device& device, const Operation& operation, const LocalWorld& world, std::size_t shift_bytes)
      : device_(device),
        operation_(operation),
        rank_(world.rank()),
        verifier_(collectives::verifier_for_tests(operation, world.num_ranks())) {
    input_.resize(static_cast<std::size_t>(input_bytes(operation, world.num_ranks(), rank_)));
    output_.resize(static_cast<std::size_t>(output_bytes(operation, world.num_ranks(), rank_)));
    constexpr std::size_t kAligned = 256;
    std::size_t input_at = 0;
    std::size_t output_at = (input_.size() + kAligned - 1) / kAligned * kAligned + shift_bytes;
    if (operation.in_place) {
      const auto layout = in_place_layout(operation, world.num_ranks(), rank_);
      input_at = static_cast<std::size_t>(layout.input_at);
      output_at = static_cast<std::size_t>(layout.output_at);
    }
    memory_ = core::DeviceBlock(device, input_.size() + output_.size() + 2 * (kAligned + shift_bytes));
    input_on_device_ = memory_.data() + shift_bytes + input_at;
    output_on_device_ = memory_.data() + shift_bytes + output_at;
  }

  const void* input() const { return input_on_device_; }
  void* output() const { return output_on_device_; }

  void fill(int round) {
    if (!device_.computes()) return;
    verifier_.fill_poison(rank_, static_cast<std::uint64_t>(round), output_.data());
    verifier_.fill_input(rank_, static_cast<std::uint64_t>(round), input_.data());
    device_.copy_to_device(output_on_device_, output_.data(), output_.size());
    device_.copy_to_device(input_on_device_, input_.data(), input_.size());
  }

  void expect_right(int round, const std::string& algorithm) {
    if (!device_.computes()) return;
    device_.copy_to_host(output_.data(), output_on_device_, output_.size());
    const auto wrong = verifier_.count_wrong(rank_, static_cast<std::uint64_t>(round), output_.data());
    if (wrong == 0) return;
    throw core::Error(core::Failure::wrong_data,
                      std::string(name_of(operation_.kind)) + ' ' + algorithm + ", rank " + std::to_string(rank_) +
                          ", root " + std::to_string(operation_.root) + ", " + std::to_string(operation_.count) + ' ' +
                          std::string(core::name_of(operation_.dtype)) + ' ' +
                          std::string(core::name_of(operation_.op)) +
                          (operation_.in_place ? " in place: " : " out of place: ") + std::to_string(wrong) + " wrong");
  }

 private:
  core::Device& device_;
  const Operation operation_;
  const int rank_;
  const collectives::Verifier verifier_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  core::DeviceBlock memory_;
  std::byte* input_on_device_ = nullptr;
  std::byte* output_on_device_ = nullptr;
};

inline void finish(TestRank& rank) {
  rank.stream->synchronize();
  rank.ranks->check();
}

// Runs a few calls. Memory is allocated before prepare() and released after all calls are done: see cuda_ranks.h.
inline void expect_exact_on_device(LocalWorld& world, TestRank& rank, const plan::Plan& plan,
                                   const Operation& operation, std::size_t shift_bytes) {
  constexpr int kRounds = 3;
  TestBuffers buffers(*rank.device, operation, world, shift_bytes);
  const auto collective = rank.ranks->prepare(plan, operation);
  for (int round = 0; round < kRounds; ++round) {
    buffers.fill(round);
    if (round % 2 == 0) world.barrier();
    collective->run(buffers.input(), buffers.output());
    finish(rank);
    buffers.expect_right(round, plan.algorithm);
  }
  world.barrier();
}

// Runs all cases in sequence on the same ranks. Returns the error text, empty if there was none.
inline std::string run_cases_on(int num_ranks, const MakeRank& make_rank, const std::vector<Case>& cases,
                                const CudaOptions& options, std::size_t shift_bytes = 0) {
  return run_ranks_on(num_ranks, make_rank, options, [&](LocalWorld& world, TestRank& rank) {
    for (const Case& c : cases) {
      run_case(world, c, [&](const plan::Plan& plan, const Operation& operation, const DirectOptions&) {
        expect_exact_on_device(world, rank, plan, operation, shift_bytes);
      });
    }
  });
}

// Ring and two-shot in every dtype and with every operation.
inline std::vector<Case> all_types_and_operations(std::int64_t count) {
  std::vector<Case> cases;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    if (algorithm.name != "ring" && algorithm.name != "two_shot") continue;
    for (core::DType dtype : core::all_dtypes()) {
      for (core::ReduceOp op : core::all_reduce_ops()) {
        if (op != core::ReduceOp::sum && !collectives::has_op(algorithm.kind)) continue;
        cases.push_back({.algorithm = &algorithm, .count = count, .dtype = dtype, .op = op});
      }
    }
  }
  return cases;
}

// Rank 1 of three stays away: what the others say when their kernels have given up. Both wait for it themselves: where
// one waits for the other, who waits for the third, whoever began first gives up first.
inline std::vector<std::string> said_of_rank_1_away(const MakeRank& make_rank, const CudaOptions& options) {
  std::vector<std::string> said(3);
  const auto failed = run_ranks_on(3, make_rank, options, [&](LocalWorld& world, TestRank& rank) {
    const Operation operation{.kind = collectives::Kind::all_reduce, .count = 100};
    const algorithms::Choice one_shot = algorithms::parse_choice(operation.kind, "one_shot");
    TestBuffers buffers(*rank.device, operation, world, 0);
    buffers.fill(0);
    const auto collective = rank.ranks->prepare(algorithms::make_plan(one_shot, 3, 0), operation);
    if (world.rank() != 1) {
      collective->run(buffers.input(), buffers.output());
      try {
        finish(rank);
      } catch (const core::Error& error) {
        said[static_cast<std::size_t>(world.rank())] = error.what();
      }
    }
    world.barrier();  // no rank frees memory that others write to
  });
  if (!failed.empty()) said.assign(3, failed);
  return said;
}

// A rank that starts after the others have timed out touches no other rank's memory, and reports the same error.
inline std::string said_by_who_comes_late(const MakeRank& make_rank, const CudaOptions& options) {
  std::string said;
  const auto failed = run_ranks_on(2, make_rank, options, [&](LocalWorld& world, TestRank& rank) {
    const Operation operation{.kind = collectives::Kind::broadcast, .count = 100, .root = 1};
    const algorithms::Choice choice = algorithms::parse_choice(operation.kind, "direct");
    TestBuffers buffers(*rank.device, operation, world, 0);
    buffers.fill(0);
    const auto collective = rank.ranks->prepare(algorithms::make_plan(choice, 2, 1), operation);
    if (world.rank() == 1) world.barrier();
    collective->run(buffers.input(), buffers.output());
    try {
      finish(rank);
    } catch (const core::Error& error) {
      if (world.rank() == 1) said = error.what();
    }
    if (world.rank() == 0) world.barrier();
    world.barrier();
  });
  return failed.empty() ? said : failed;
}

}  // namespace lockstep::executors
