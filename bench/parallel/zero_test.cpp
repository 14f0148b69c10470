#include <gtest/gtest.h>

#include <vector>

#include "bench/parallel/zero_program.h"
#include "bench/parallel/zero_run.h"
#include "core/error.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

std::int64_t of(const parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

ZeroFlags small_flags() {
  ZeroFlags flags;
  flags.step.program = "zero_bench";
  flags.step.options.model = workload::parse_model("nano,layers=3,hidden=64");
  flags.step.options.layout.microbatch_size = 1;
  flags.step.options.model.sequence = 16;
  flags.step.rounds = 2;
  flags.step.warmup_rounds = 1;
  return flags;
}

// Two buckets of 64 elements, one of which is kept once it is gathered; four ranks, f32.
TEST(ZeroForms, StageThreeGathersWhatIsHeldOnce) {
  const ZeroForms forms =
      zero_forms({.replicas = 4, .stage = 3, .prefetch = true}, {{64, false}, {64, true}}, {.microbatches = 3});
  EXPECT_EQ(of(forms.held, MemoryKind::weights), 2 * 64 / 4 * 4);
  EXPECT_EQ(of(forms.held, MemoryKind::optimizer), 2 * 64 / 4 * 8);
  const std::int64_t pass = std::int64_t{3} * 16 * 4;  // bytes that a rank sends to gather one of them
  EXPECT_EQ(forms.sent.weights, (2 * 3 + 1) * pass);
  EXPECT_EQ(forms.sent.gradients, std::int64_t{2} * 3 * pass);
  EXPECT_EQ(forms.most_weights, 2 * 64 + (1 + 2) * 64 * 4);  // shards, the held one, two gathered ahead
}

TEST(ZeroRun, BytesAreTheFormulasWithSeveralMicrobatches) {
  ZeroFlags flags = small_flags();
  flags.step.options.layout.microbatches = 2;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool prefetch : {true, false}) {
      const ZeroRow row{.replicas = 3,
                        .stage = stage,
                        .prefetch = prefetch,
                        .compute = core::DType::bf16,
                        .gradient = prefetch ? core::DType::bf16 : core::DType::f32};
      const ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << stage << " " << prefetch;
      EXPECT_EQ(result.samples_ms.size(), 2U);
      EXPECT_GE(result.padded, result.parameters);
      EXPECT_LT(result.padded, result.parameters * 101 / 100);
    }
  }
}

// r = 2, and r = 3, which divides no shard.
TEST(ZeroRun, BytesAreTheFormulasWithReplicasOfShards) {
  ZeroFlags flags = small_flags();
  flags.step.options.layout.microbatches = 2;
  for (const int stage : {1, 2, 3}) {
    for (const int replicas : {4, 6}) {
      const ZeroRow row{.replicas = replicas,
                        .stage = stage,
                        .compute = core::DType::bf16,
                        .gradient = replicas == 4 ? core::DType::bf16 : core::DType::f32,
                        .shard_ranks = 2};
      const ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << stage << " " << replicas;
      // Hidden 64: nothing is padded. All a rank holds are halves; over replicas it sends 2 psi/2 (r-1)/r a reduction.
      EXPECT_EQ(result.padded, result.parameters);
      const double psi_bytes = static_cast<double>(result.parameters) * (replicas == 4 ? 2 : 4);
      const double a_reduction = replicas == 4 ? psi_bytes / 2 : psi_bytes * 2 / 3;
      EXPECT_NEAR(result.sent.replicas / (a_reduction * (stage >= 2 ? 2 : 1)), 1, 1e-9);
      EXPECT_EQ(of(result.held, MemoryKind::optimizer), result.parameters / 2 * 12);
    }
  }
}

TEST(ZeroRun, BytesAreTheFormulasWithAllKindsBeyondTheDevice) {
  ZeroFlags flags = small_flags();
  flags.step.options.layout.microbatches = 2;
  using workload::Offload;
  for (const core::DType compute : {core::DType::bf16, core::DType::f32}) {
    for (const Offload place : {Offload::host, Offload::file}) {
      const ZeroRow row{.replicas = 2,
                        .stage = 3,
                        .prefetch = place == Offload::host,
                        .compute = compute,
                        .offload = {place, Offload::host, place}};
      ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << core::short_name_of(compute);
      EXPECT_EQ(parallel::total_of(result.forms.held), 0);
      EXPECT_GT(result.offloaded_bytes(), 0);
      ++result.offloaded[1];
      EXPECT_NE(result.wrong().find("gradients offloaded"), std::string::npos);
    }
  }
}

// ZeRO++: weights as codes, a secondary copy of them, gradients as codes in one hop and in two.
TEST(ZeroRun, BytesAreTheFormulasWithAllOfZeroPlusPlus) {
  ZeroFlags flags = small_flags();
  flags.step.options.layout.microbatches = 2;
  ZeroRow row{.replicas = 4, .stage = 3, .compute = core::DType::bf16};
  row.secondary_ranks = 2;
  const ZeroResult secondary = run_zero(flags, row);
  EXPECT_EQ(secondary.wrong(), "");
  row.weight_compression = workload::CompressionWay::int8;
  row.compression = workload::CompressionWay::int4;
  for (const int near_ranks : {0, 2}) {
    row.near_ranks = near_ranks;
    const ZeroResult result = run_zero(flags, row);
    EXPECT_EQ(result.wrong(), "") << near_ranks;
    EXPECT_EQ(result.sent.secondary, secondary.sent.secondary) << "neighbours get weights as they are";
    EXPECT_LT(result.sent.weights, 0.6 * secondary.sent.weights);
    EXPECT_LT(result.sent.gradients, 0.2 * secondary.sent.gradients);
    EXPECT_EQ(result.sent.near > 0, near_ranks > 0);
  }
}

TEST(ZeroFlags, StagesOneToThreeHaveARowForEachSetOfShards) {
  ZeroFlags flags;
  flags.step.replicas = {4};
  flags.shard_ranks = {0, 2};
  flags.prefetch = {true};
  flags.compute = {core::DType::f32};
  std::vector<int> shards;
  for (const ZeroRow& row : zero_rows(flags)) shards.push_back(row.shards());
  EXPECT_EQ(shards, (std::vector<int>{4, 4, 2, 4, 2, 4, 2}));
  EXPECT_THROW(options_of(flags, {.replicas = 4, .stage = 3, .shard_ranks = 3}), core::Error);
  EXPECT_THROW(options_of(flags, {.replicas = 4, .stage = 3, .shard_ranks = 1}), core::Error);
}

TEST(ZeroRun, ADifferenceIsToldAndShown) {
  ZeroResult result = run_zero(small_flags(), {.replicas = 2, .stage = 1});
  ASSERT_EQ(result.wrong(), "");
  result.held[static_cast<std::size_t>(MemoryKind::optimizer)] += 4;
  result.sent.gradients *= 2;
  result.sent.replicas += 1;
  const std::string wrong = result.wrong();
  EXPECT_NE(wrong.find("optimizer"), std::string::npos);
  EXPECT_NE(wrong.find("gradients sent"), std::string::npos);
  EXPECT_NE(wrong.find("over replicas"), std::string::npos);
  EXPECT_EQ(wrong.find("weights"), std::string::npos);
  EXPECT_NE(zero_row_text({.replicas = 2, .stage = 1}, result).find("wrong"), std::string::npos);
}

TEST(ZeroText, ThePapersTable) {
  const std::string text = zero_heading_text(small_flags());
  EXPECT_NE(text.find("stage 0: 120 GB, stage 1: 31.41 GB, stage 2: 16.64 GB, stage 3: 1.875 GB"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel_bench
