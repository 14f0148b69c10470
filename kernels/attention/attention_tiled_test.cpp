// Attention in bf16 on tiles of AMX that are emulated.
#include "kernels/attention/attention_tiled.h"

#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/attention/attention.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/registry.h"

namespace lockstep::kernels {

// Emulates AMX's tile instructions in plain loops, for tests.
class EmulatedTiles {
 public:
  template <int kTile>
  void load(const void* from, std::int64_t row_bytes) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      std::memcpy(row<kTile>(r), static_cast<const std::byte*>(from) + r * row_bytes, kRowBytes);
    }
  }
  template <int kTile>
  void store(void* to, std::int64_t row_bytes) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + r * row_bytes, row<kTile>(r), kRowBytes);
    }
  }
  template <int kTile>
  void zero() {
    tiles_[kTile] = {};
  }

  // TDPBF16PS: sums of even and of odd depths by fused multiply-add, then both are added, then c; subnormal inputs and
  // outputs become zero (Intel SDM, volume 2, TDPBF16PS).
  template <int kC, int kA, int kB>
  void multiply() {
    for (std::int64_t m = 0; m < kRows; ++m) {
      for (std::size_t n = 0; n < kColumns; ++n) {
        std::array<float, 2> sums{};
        for (std::int64_t k = 0; k < kRows; ++k) {
          for (std::size_t part = 0; part < 2; ++part) {
            const float a = narrow(row<kA>(m), 2 * static_cast<std::size_t>(k) + part);
            const float b = narrow(row<kB>(k), 2 * n + part);
            sums[part] = normal(std::fma(a, b, sums[part]));
          }
        }
        float c = 0;
        std::memcpy(&c, row<kC>(m) + sizeof(float) * n, sizeof(float));
        c = normal(normal(c) + normal(sums[0] + sums[1]));
        std::memcpy(row<kC>(m) + sizeof(float) * n, &c, sizeof(float));
      }
    }
  }

 private:
  static constexpr std::int64_t kRows = 16;
  static constexpr std::size_t kRowBytes = 64;
  static constexpr std::size_t kColumns = kRowBytes / sizeof(float);
  using Tile = std::array<std::array<std::byte, kRowBytes>, kRows>;

  template <int kTile>
  std::byte* row(std::int64_t r) {
    return tiles_[kTile][static_cast<std::size_t>(r)].data();
  }
  static float normal(float value) { return std::fabs(value) < FLT_MIN ? std::copysign(0.0F, value) : value; }
  static float narrow(const std::byte* row, std::size_t index) {
    core::BFloat16 value;
    std::memcpy(&value, row + sizeof(value) * index, sizeof(value));
    return normal(core::to_float(value));
  }

  std::array<Tile, 8> tiles_{};
};

// Attention on tiles, with a program in place of AMX.
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
std::string tiled_errors(const KernelCase& kernel_case) {
  const auto device = core::make_cpu_device();
  std::array<TiledPool, 3> pools{TiledPool(1), TiledPool(2), TiledPool(3)};
  std::vector<CaseRunner> runners;
  for (const TiledPool& pool : pools) runners.push_back({*device, pool.context()});
  std::string text;
  for (std::size_t i = 0; i < runners.size(); ++i) {
    text += result_errors(kernel_case, i + 1, runners[i], static_cast<int>(i));
  }
  return text + determinism_errors(kernel_case, 1, runners);
}

TEST(AttentionTiled, CasesHoldOnEveryTarget) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& kernel_case : attention_test_cases()) {
      if (kernel_case.dtype != core::DType::bf16) continue;
      EXPECT_EQ(tiled_errors(kernel_case), "") << target;
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
