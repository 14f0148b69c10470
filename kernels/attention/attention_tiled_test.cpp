// Attention on tiles, with a program in place of AMX.
#include "kernels/attention/attention_tiled.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/device_cpu.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/emulated_tiles.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/base/each_target.h"
#include "kernels/cases.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

std::unique_ptr<TileMultiplier> emulated() {
  return std::make_unique<TileMultiplierOn<EmulatedTiles>>();
}

// A pool whose threads have emulated tiles.
class TiledPool {
 public:
  explicit TiledPool(int num_threads) : pool_(num_threads), context_(pool_) { pool_.kept<TileUnit>().make = emulated; }
  const Context& context() const { return context_; }

 private:
  ThreadPool pool_;
  Context context_;
};

// Like cpu_errors, in pools of 1, 2 and 3 threads.
std::string tiled_errors(const KernelCase& one) {
  const auto device = core::make_cpu_device();
  std::array<TiledPool, 3> pools{TiledPool(1), TiledPool(2), TiledPool(3)};
  std::vector<CaseRunner> runners;
  for (const TiledPool& pool : pools) runners.push_back({*device, pool.context()});
  std::string text;
  for (std::size_t i = 0; i < runners.size(); ++i) {
    text += result_errors(one, i + 1, runners[i], static_cast<int>(i));
  }
  return text + determinism_errors(one, 1, runners);
}

TEST(AttentionTiled, CasesHoldOnEveryTarget) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& one : attention_test_cases()) {
      if (one.dtype != core::DType::bf16) continue;
      EXPECT_EQ(tiled_errors(one), "") << target;
    }
  });
}

// Lengths and columns that models use, and neighbouring values.
TEST(AttentionTiled, ModelShapesHold) {
  for (const AttentionShape& shape : {AttentionShape{1, 1, 257, 257, 64}, AttentionShape{1, 1, 193, 193, 128},
                                      AttentionShape{1, 1, 255, 255, 128, false}, AttentionShape{1, 1, 95, 161, 64},
                                      AttentionShape{1, 1, 97, 128, 96, false}}) {
    EXPECT_EQ(tiled_errors(case_of(shaped(AttentionForward{.shape = shape}, core::DType::bf16))), "");
    EXPECT_EQ(tiled_errors(case_of(shaped(AttentionBackward{.shape = shape}, core::DType::bf16))), "");
  }
}

// The tests above do run on tiles, and other types do not.
TEST(AttentionTiled, OnlyBf16IsTiled) {
  ThreadPool pool(1);
  pool.kept<TileUnit>().make = emulated;
  const AttentionShape shape{1, 1, 4, 4, 8};
  EXPECT_TRUE(is_tiled(shaped(AttentionForward{.shape = shape}, core::DType::bf16), pool));
  EXPECT_TRUE(is_tiled(shaped(AttentionBackward{.shape = shape}, core::DType::bf16), pool));
  EXPECT_FALSE(is_tiled(shaped(AttentionForward{.shape = shape}, core::DType::f32), pool));
  EXPECT_FALSE(is_tiled(shaped(AttentionForward{.shape = shape}, core::DType::f16), pool));
  pool.kept<TileUnit>().make = nullptr;
  EXPECT_FALSE(is_tiled(shaped(AttentionForward{.shape = shape}, core::DType::bf16), pool));
}

}  // namespace
}  // namespace lockstep::kernels
