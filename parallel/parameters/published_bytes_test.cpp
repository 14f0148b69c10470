#include "parallel/parameters/published_bytes.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "parallel/parameters/zero_bytes.h"

namespace lockstep::parallel {
namespace {

using core::DType;

TEST(PublishedBytes, MegatronsTable) {
  EXPECT_EQ(megatron_bytes_a_parameter(DType::f16, 8, false), 20);
  EXPECT_EQ(megatron_bytes_a_parameter(DType::bf16, 8, false), 18);
  EXPECT_EQ(megatron_bytes_a_parameter(DType::f32, 8, false), 16);
  EXPECT_EQ(megatron_bytes_a_parameter(DType::f16, 8, true), 4 + 2);
  EXPECT_EQ(megatron_bytes_a_parameter(DType::bf16, 8, true), 6 + 1.5);
  EXPECT_EQ(megatron_bytes_a_parameter(DType::f32, 8, true), 8 + 1);
  EXPECT_THROW(megatron_bytes_a_parameter(DType::i8, 8, true), core::Error);
}

// Its distributed optimizer is stage 1 with gradients in f32; in f16 it has a copy of gradients more.
TEST(PublishedBytes, MegatronsIsStageOne) {
  constexpr std::int64_t kElems = 6400;
  for (const std::int32_t ranks : {1, 2, 8, 64}) {
    const auto a_parameter = [&](DType dtype, DType gradient) {
      const ZeroCase of{.elems = kElems, .ranks = ranks, .stage = 1, .compute = dtype, .gradient = gradient};
      return static_cast<double>(total_of(zero_bytes(of))) / static_cast<double>(kElems);
    };
    EXPECT_DOUBLE_EQ(megatron_bytes_a_parameter(DType::bf16, ranks, true), a_parameter(DType::bf16, DType::f32));
    EXPECT_DOUBLE_EQ(megatron_bytes_a_parameter(DType::f32, ranks, true), a_parameter(DType::f32, DType::f32));
    EXPECT_DOUBLE_EQ(megatron_bytes_a_parameter(DType::f16, ranks, true),
                     a_parameter(DType::f16, DType::f16) + 4.0 / ranks);
  }
}

// 3 billion parameters on 8 ranks of a node, the largest layer 100 million.
TEST(PublishedBytes, DeepSpeedsEstimates) {
  DeepSpeedCase of{.parameters = 3'000'000'000, .largest_layer = 100'000'000, .ranks = 8};
  EXPECT_EQ(deepspeed_stage2_device_bytes(of), 6'000'000'000 + 6'750'000'000);
  EXPECT_EQ(deepspeed_stage3_device_bytes(of), 400'000'000 + 6'750'000'000);
  EXPECT_THROW(deepspeed_stage2_host_bytes(of), core::Error);
  of.offload = DeepSpeedOffload::optimizer;
  EXPECT_EQ(deepspeed_stage2_device_bytes(of), 6'000'000'000);
  EXPECT_EQ(deepspeed_stage2_host_bytes(of), 144'000'000'000);
  EXPECT_EQ(deepspeed_stage3_device_bytes(of), 400'000'000 + 750'000'000);
  of.offload = DeepSpeedOffload::parameters_too;
  EXPECT_EQ(deepspeed_stage3_device_bytes(of), 400'000'000);
  EXPECT_EQ(deepspeed_stage3_host_bytes(of), 81'000'000'000);
  of.nodes = 2;
  EXPECT_EQ(deepspeed_stage3_host_bytes(of), 40'500'000'000);
  of.offload = DeepSpeedOffload::optimizer;
  of.ranks = 2;
  EXPECT_EQ(deepspeed_stage2_host_bytes(of), 72'000'000'000) << "16 bytes a parameter at least";
}

// With few ranks their sharded part outweighs the paper's: 18 bytes to 14.
TEST(PublishedBytes, DeepSpeedsStageTwoIsMoreThanThePapers) {
  const ZeroCase paper{.elems = 6'400'000, .ranks = 64, .stage = 2};
  const std::int64_t deepspeed = deepspeed_stage2_device_bytes({.parameters = paper.elems, .ranks = paper.ranks});
  EXPECT_EQ(deepspeed - total_of(zero_bytes(paper)), 4 * paper.shard_elems());
}

}  // namespace
}  // namespace lockstep::parallel
