// Needs GPUs: plans of the whole catalogue as groups of NCCL's sends and receives, on ranks that share a GPU if NCCL
// allows it (2.30 or newer, with its variable set), else on one rank per GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/backend.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/verify.h"
#include "core/device.h"
#include "core/error.h"
#include "testing/core/fixtures.h"

namespace lockstep::backends {
namespace {

using collectives::Kind;
using collectives::Operation;

constexpr int kMostRanks = 4;

int most_ranks() {
  if (!libraries::why_no_shared_gpu()) return kMostRanks;
  return std::min(kMostRanks, static_cast<int>(core::cuda_devices().size()));
}

std::shared_ptr<const collectives::CountMatrix> uneven(int num_ranks, std::int64_t count) {
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = num_ranks;
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) matrix->counts.push_back(count * ((from + 2 * to) % 4));
  }
  return matrix;
}

// A rank's buffers on the device, and the host's copies of them.
class Buffers {
 public:
  Buffers(Endpoint& endpoint, const Operation& operation)
      : endpoint_(endpoint), operation_(operation), verifier_(operation, endpoint.world.num_ranks(), 11) {
    const int ranks = endpoint.world.num_ranks();
    input_.resize(static_cast<std::size_t>(input_bytes(operation, ranks, rank())));
    output_.resize(static_cast<std::size_t>(output_bytes(operation, ranks, rank())));
    constexpr std::size_t kAligned = 256;
    std::size_t input_at = 0;
    std::size_t output_at = (input_.size() + kAligned - 1) / kAligned * kAligned;
    if (operation.in_place) {
      const auto layout = in_place_layout(operation, ranks, rank());
      input_at = static_cast<std::size_t>(layout.input_at);
      output_at = static_cast<std::size_t>(layout.output_at);
    }
    memory_ = core::DeviceBlock(endpoint.device, input_.size() + output_.size() + kAligned);
    device_input_ = memory_.data() + input_at;
    device_output_ = memory_.data() + output_at;
  }

  // In place: poison first, then the input.
  void run(collectives::Collective& collective, std::uint64_t round) {
    if (endpoint_.device.computes()) fill(round);
    collective.run(device_input_, device_output_);
    endpoint_.finish();
  }
  std::int64_t wrong(std::uint64_t round) {
    if (!endpoint_.device.computes()) return 0;
    endpoint_.device.copy_to_host(output_.data(), device_output_, output_.size());
    return verifier_.count_wrong(rank(), round, output_.data());
  }

 private:
  int rank() const { return endpoint_.world.rank(); }
  void fill(std::uint64_t round) {
    verifier_.fill_poison(rank(), round, output_.data());
    verifier_.fill_input(rank(), round, input_.data());
    endpoint_.device.copy_to_device(device_output_, output_.data(), output_.size());
    endpoint_.device.copy_to_device(device_input_, input_.data(), input_.size());
  }

  Endpoint& endpoint_;
  const Operation operation_;
  const collectives::Verifier verifier_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  core::DeviceBlock memory_;
  std::byte* device_input_ = nullptr;
  std::byte* device_output_ = nullptr;
};

void expect_exact(Endpoint& endpoint, const Operation& operation, std::string_view algorithm) {
  Buffers buffers(endpoint, operation);
  const Prepared prepared = endpoint.prepare(operation, algorithm);
  EXPECT_EQ(prepared.executor, "nccl");
  for (std::uint64_t round = 0; round < 2; ++round) {  // the first connects
    buffers.run(*prepared.collective, round);
    const std::int64_t wrong = buffers.wrong(round);
    if (wrong == 0) continue;
    throw core::Error(core::Failure::wrong_data,
                      std::string(collectives::name_of(operation.kind)) + " " + std::string(algorithm) + ", root " +
                          std::to_string(operation.root) + (operation.in_place ? ", in place" : "") + ", rank " +
                          std::to_string(endpoint.world.rank()) + ": " + std::to_string(wrong) + " wrong");
  }
  endpoint.world.barrier();
}

void expect_all_exact(Endpoint& endpoint, const algorithms::Algorithm& algorithm, std::int64_t count) {
  const int ranks = endpoint.world.num_ranks();
  if (algorithms::refusal(algorithms::parse_choice(algorithm.kind, algorithm.name), ranks, 0)) return;
  for (const int root : {0, ranks - 1}) {
    if (root > 0 && !collectives::has_root(algorithm.kind)) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && algorithm.kind == Kind::all_to_all_v) continue;  // its blocks differ in size
      Operation operation{.kind = algorithm.kind, .count = count, .root = root, .in_place = in_place};
      if (algorithm.kind == Kind::all_to_all_v) operation.matrix = uneven(ranks, count);
      expect_exact(endpoint, operation, algorithm.name);
    }
  }
}

TEST(NcclPlans, EveryAlgorithmOfTheCatalogueIsExact) {
  const Backend& nccl = find_backend("nccl");
  if (const auto why = nccl.absence()) GTEST_SKIP() << *why;
  const Backend* const backends[] = {&nccl};
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
    BackendOptions options;
    options.num_ranks = ranks;
    options.timeout = core::kGpuTestDeadline;
    EXPECT_NO_THROW(run_together(backends, options,
                                 [](std::span<Endpoint* const> endpoints) {
                                   for (const Kind kind : collectives::all_kinds()) {
                                     for (const auto* algorithm : algorithms::algorithms_of(kind)) {
                                       expect_all_exact(*endpoints.front(), *algorithm, 1003);
                                     }
                                   }
                                 }))
        << ranks << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::backends
