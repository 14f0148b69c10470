#include "parallel/parameters/zero_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace lockstep::parallel {
namespace {

using core::DType;

double gigabytes(const BytesByKind& bytes) {
  return static_cast<double>(total_of(bytes)) / 1e9;
}

// Rajbhandari et al. 2019, figure 1: 7.5B parameters, 64 ranks, mixed precision with Adam.
TEST(ZeroBytes, ThePapersExample) {
  ZeroCase of{.elems = 7'500'000'000, .ranks = 64};
  const auto at_stage = [&](std::int32_t stage) {
    of.stage = stage;
    return gigabytes(zero_bytes(of));
  };
  EXPECT_DOUBLE_EQ(at_stage(0), 120);
  EXPECT_EQ(std::round(at_stage(1) * 10) / 10, 31.4);
  EXPECT_EQ(std::round(at_stage(2) * 10) / 10, 16.6);
  EXPECT_EQ(std::round(at_stage(3) * 100) / 100, 1.88);
}

TEST(ZeroBytes, MixedPrecisionIsSixteenBytesAParameter) {
  for (const std::int64_t n : {1, 2, 4, 64}) {
    const std::int64_t psi = 64'000;
    ZeroCase of{.elems = psi, .ranks = static_cast<std::int32_t>(n)};
    const std::int64_t expected[] = {16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n, 16 * psi / n};
    for (of.stage = 0; of.stage < 4; ++of.stage) {
      EXPECT_EQ(total_of(zero_bytes(of)), expected[of.stage]) << "stage " << of.stage << " of " << n;
    }
  }
}

// In f32 the weights are their own master copy.
TEST(ZeroBytes, SinglePrecisionAndWideGradients) {
  ZeroCase of{.elems = 1000, .ranks = 4, .stage = 0, .compute = DType::f32, .gradient = DType::f32};
  EXPECT_EQ(zero_bytes(of), (BytesByKind{4000, 4000, 8000, 0, 0}));
  of.stage = 1;
  EXPECT_EQ(zero_bytes(of), (BytesByKind{4000, 4000, 2000, 0, 0}));
  of.stage = 3;
  EXPECT_EQ(zero_bytes(of), (BytesByKind{1000, 1000, 2000, 0, 0}));
  of.compute = DType::f16;
  of.stage = 2;
  EXPECT_EQ(zero_bytes(of), (BytesByKind{2000, 1000, 3000, 0, 0}));
}

TEST(ZeroBytes, AShardIsRoundedUp) {
  const ZeroCase of{.elems = 10, .ranks = 4, .stage = 3};
  EXPECT_EQ(total_of(zero_bytes(of)), 16 * 3);
}

// docs/metrics.md: over all elements.
TEST(ZeroBytes, Passes) {
  for (const std::int32_t m : {1, 2, 5}) {
    ZeroTraffic traffic{.microbatches = m};
    const auto passes = [&](std::int32_t stage) {
      const ZeroPasses of = zero_passes(stage, traffic);
      return std::pair{of.weights, of.gradients};
    };
    using Pair = std::pair<std::int64_t, std::int64_t>;
    EXPECT_EQ(passes(0), Pair(0, 2));
    EXPECT_EQ(passes(1), Pair(1, 1));
    EXPECT_EQ(passes(2), Pair(1, m));
    EXPECT_EQ(passes(3), Pair(2 * m, m));
    traffic.gathers = ZeroGathers::once_a_microbatch;
    EXPECT_EQ(passes(3), Pair(m, m));
    traffic.gathers = ZeroGathers::once_a_step;
    EXPECT_EQ(passes(3), Pair(1, m));
    traffic.reduce_every_microbatch = false;
    EXPECT_EQ(passes(3), Pair(1, 1));
    EXPECT_EQ(passes(2), Pair(1, 1));
  }
}

// arXiv:2304.11277, section 3.2.2, for the reductions of one step among W = n r ranks: 2 M (r-1)/W per rank over
// replicas, M the bytes of all parameters.
TEST(ZeroBytes, ReplicasOfShardsSendShards) {
  for (const std::int32_t n : {2, 4, 8}) {
    for (const std::int32_t r : {1, 2, 3}) {
      const std::int64_t model_bytes = std::int64_t{2} * 2400;
      ZeroCase of{.elems = 2400, .ranks = n, .stage = 3, .replicas = r};
      EXPECT_DOUBLE_EQ(zero_replica_bytes(of, {}), 2.0 * static_cast<double>(model_bytes) * (r - 1) / (n * r));
      EXPECT_DOUBLE_EQ(zero_replica_bytes(of, {.microbatches = 3}), 3 * zero_replica_bytes(of, {}));
      const BytesByKind held = zero_bytes(of);
      of.stage = 1;  // reduces once a step
      EXPECT_DOUBLE_EQ(zero_replica_bytes(of, {.microbatches = 3}), zero_replica_bytes(of, {}));
      of.stage = 3;
      of.replicas = 1;
      EXPECT_EQ(zero_bytes(of), held);
    }
  }
  EXPECT_EQ(zero_replica_bytes({.elems = 2400, .ranks = 4, .stage = 0, .replicas = 2}, {}), 0);
}

// 16 bits, two microbatches, a gather in each forward and backward: 24 bytes of an element's states, 4 x 2 of its
// gradient, 6 x 2 of its weight.
TEST(OffloadedBytes, AreTheFormulas) {
  const ZeroPasses passes = zero_passes(3, {.microbatches = 2});
  const workload::OffloadPlaces all{workload::Offload::file, workload::Offload::host, workload::Offload::file};
  constexpr std::int64_t kBlocks = 64 * 2048;
  const auto staging =
      workload::offload_staging(all, kernels::OptimizerKind::adamw, core::DType::bf16, core::DType::bf16, kBlocks);
  EXPECT_EQ(offloaded_bytes(passes, kBlocks, staging), (OffloadedBytes{24 * kBlocks, 8 * kBlocks, 12 * kBlocks}));
  const auto states_alone =
      workload::offload_staging({.optimizer = workload::Offload::host}, kernels::OptimizerKind::adamw, core::DType::f32,
                                core::DType::f32, kBlocks);
  EXPECT_EQ(offloaded_bytes(passes, kBlocks, states_alone), (OffloadedBytes{16 * kBlocks, 0, 0}));
  // An element of each kind is a block.
  EXPECT_EQ(offloaded_bytes(passes, 1, staging), (OffloadedBytes{2 * 4096, 4 * 4096, 6 * 4096}));
}

}  // namespace
}  // namespace lockstep::parallel
