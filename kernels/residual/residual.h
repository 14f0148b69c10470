// A residual connection, if no norm follows with which it could be fused: dropout by a counter-based random generator,
// and the sum.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// Philox4x32-10 for host code of any compiler; see Dropout for the source.

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9u;  // the golden ratio
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85u;  // sqrt(3) - 1

// Computes four words from a counter and a key of 32-bit words.
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }
  return counter;
}

constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

// Dropout with a counter-based generator: whether element i is kept depends only on (seed, step, first_element + i), so
// that a backward, a recomputation and any shard of the tensor draw the same mask, on any device and with any number of
// threads. Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3, SC'11, section
// 3.3): key = seed; counter = (element / 4, step); word element % 4 of the block is compared with the threshold.
// Deterministic.
//
// y = x / (1 - rate) for kept elements, else 0. The backward is the same kernel on dy.
struct Dropout {
  static constexpr std::array kInPlace{InPlace{"y", "x"}};
  std::int64_t count;
  float rate;                       // 0 <= rate < 1
  std::uint64_t seed = 0;           // seed of the layer and run
  std::uint64_t step = 0;           // training step, combined with the microbatch
  std::uint64_t first_element = 0;  // position of x in the whole tensor
  In x = {};                        // [count]
  Out y = {};                       // [count], may be x

  std::string_view name() const { return "dropout"; }
  void check_shape() const;  // also checks the rate
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kActivations);
    visit("y", self.y, self.count, DTypes(self.x.dtype));
  }
};

// An element is kept if its word is at or above this threshold: rate * 2^32, rounded down.
constexpr std::uint32_t dropout_threshold(float rate) {
  return static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
}

// Returns the four words of the block that holds elements 4 * block to 4 * block + 3.
std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t step, std::uint64_t block);

Cost cost_of(const Dropout& args);

void run_cpu(const Dropout& args, ThreadPool& pool);
void run_cuda(const Dropout& args, CudaContext& cuda);

// y = a + b. Deterministic.
struct ResidualAdd {
  static constexpr std::array kInPlace{InPlace{"y", "a"}, InPlace{"y", "b"}};
  std::int64_t count;
  In a = {};   // [count]
  In b = {};   // [count]
  Out y = {};  // [count], may be a or b

  std::string_view name() const { return "residual_add"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("a", self.a, self.count, kActivations);
    visit("b", self.b, self.count, DTypes(self.a.dtype));
    visit("y", self.y, self.count, DTypes(self.a.dtype));
  }
};

Cost cost_of(const ResidualAdd& args);

void run_cpu(const ResidualAdd& args, ThreadPool& pool);
void run_cuda(const ResidualAdd& args, CudaContext& cuda);

// Reference of the sum: a plain loop, for tests.

template <class S>
void reference(const ResidualAdd& /*args*/, ReferenceData<S>& data) {
  const auto a = data["a"];
  const auto b = data["b"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
}

}  // namespace lockstep::kernels
