// Shapes that cases of several kernel families share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace lockstep::kernels {

inline constexpr std::array kActivationDTypes{core::DType::f32, core::DType::bf16, core::DType::f16};
inline constexpr std::array kBenchDTypes{core::DType::f32, core::DType::bf16};

// Lengths around and far from the widths of vectors, primes among them. The longest, beyond a core's caches, occurs
// once per kernel.
inline std::vector<std::int64_t> test_counts(core::DType dtype) {
  return {1, 3, 17, 64, 127, 1031, dtype == core::DType::f32 ? 1000003 : 100003};
}

// A batch of token vectors.
struct Tokens {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t channels;
  std::int64_t rows() const { return batch * length; }
  // Returns "B8_T128_C256"; `columns` replaces the channels if a layer is wider.
  std::string name(std::int64_t columns = 0) const {
    return "B" + std::to_string(batch) + "_T" + std::to_string(length) + "_C" +
           std::to_string(columns == 0 ? channels : columns);
  }
};

// The mini-trainer's small model, GPT-2 124M at B=4 T=64, and a batch that fits in no cache.
inline constexpr std::array kBenchTokens{Tokens{8, 128, 256}, Tokens{4, 64, 768}, Tokens{8, 1024, 768}};

}  // namespace lockstep::kernels
