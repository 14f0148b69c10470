// Emulates AMX's tile instructions in plain loops, for tests.
#pragma once

#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/narrow_float.h"

namespace lockstep::kernels {

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

}  // namespace lockstep::kernels
