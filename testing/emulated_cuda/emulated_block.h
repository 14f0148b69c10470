// A block of CUDA threads on the CPU, for tests of kernels that are templates over their lane (cuda_lane.cuh lists
// a lane's operations), using the coroutines of emulated_threads.h. Shared memory is initialised to NaN. Asynchronous
// copies happen either at once or when their thread waits for them, and leave NaN in between: a result that depends on
// the choice shows a missing barrier, too. Addresses that the device would refuse throw.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "testing/emulated_cuda/emulated_threads.h"

namespace lockstep::kernels {

class EmulatedLane;

class EmulatedBlock {
 public:
  struct Options {
    int threads = 128;  // whole warps
    std::size_t shared_bytes = 0;
    std::uint64_t seed = 1;
    bool late_copies = false;
  };
  explicit EmulatedBlock(const Options& options);

  // Runs body(lane) as each thread; throws like emulated::Threads::run.
  void run(emulated::Threads& threads, const std::function<void(EmulatedLane&)>& body);

 private:
  friend class EmulatedLane;
  void check_shared(const void* address, std::size_t size_bytes) const;

  Options options_;
  core::Random random_;
  std::vector<std::byte> memory_;
  std::byte* shared_;
};

// The counterpart of CudaLane on a device. `T` is float, core::BFloat16 or core::Float16.
class EmulatedLane {
 public:
  struct Fragment {
    std::uint32_t words[4];
  };
  EmulatedLane(EmulatedBlock& block, emulated::Threads& threads, int thread)
      : block_(block), threads_(threads), thread_(thread) {}

  int thread() const { return thread_; }
  int lane() const { return thread_ % 32; }
  int warp() const { return thread_ / 32; }
  void* shared() const;
  void sync() { threads_.meet_block(); }
  float from_lane(float value, int lane);
  float from_partner(float value, int mask) { return from_lane(value, lane() ^ mask); }
  std::uint32_t from_partner(std::uint32_t word, int mask) {
    return std::bit_cast<std::uint32_t>(from_partner(std::bit_cast<float>(word), mask));
  }
  static float exp2(float x) { return std::exp2(x); }

  template <int kBytes>
  void copy(void* to, const void* from, bool there) {
    static_assert(kBytes == 8 || kBytes == 16);
    start_copy({to, from, kBytes, there});
  }
  void wait_for_copies();

  Fragment load_matrices(const void* row);
  Fragment load_matrices_transposed(const void* row);
  template <class T>
  void multiply_add(float (&sums)[4], const Fragment& a, std::uint32_t b0, std::uint32_t b1) {
    multiply_add(sums, a, b0, b1, [](std::uint16_t bits) { return widen(T{bits}); });
  }

  template <class T>
  static std::uint32_t pack(float first, float second) {
    return narrow<T>(first).bits | std::uint32_t{narrow<T>(second).bits} << 16;
  }
  struct Two {
    float at[2];
  };
  template <class T>
  static Two unpack(std::uint32_t word) {
    return {{widen(T{static_cast<std::uint16_t>(word)}), widen(T{static_cast<std::uint16_t>(word >> 16)})}};
  }
  static float widen(float value) { return value; }
  static float widen(core::BFloat16 value) { return core::to_float(value); }
  static float widen(core::Float16 value) { return core::to_float(value); }
  template <class T>
  static T narrow(float value) {
    if constexpr (std::is_same_v<T, float>) {
      return value;
    } else if constexpr (std::is_same_v<T, core::BFloat16>) {
      return core::to_bfloat16(value);
    } else {
      return core::to_float16(value);
    }
  }
  template <class T>
  static void store_pair(T* to, float first, float second) {
    check_aligned(to, 2 * sizeof(T));
    to[0] = narrow<T>(first);
    to[1] = narrow<T>(second);
  }
  static std::uint32_t load_word(const void* from);
  static void store_words(void* to, const std::uint32_t (&words)[4]);

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t size_bytes;
    bool there;
  };
  static void check_aligned(const void* address, std::size_t alignment_bytes);
  static void perform(const Copy& copy);
  void start_copy(const Copy& copy);
  // Row r of matrix w is at the address that lane 8 w + r gave.
  using Matrices = std::array<std::array<std::array<std::uint16_t, 8>, 8>, 4>;
  Matrices gather_matrices(const void* row);
  void multiply_add(float (&sums)[4], const Fragment& a, std::uint32_t b0, std::uint32_t b1,
                    float (*value)(std::uint16_t bits));

  EmulatedBlock& block_;
  emulated::Threads& threads_;
  int thread_;
  std::vector<Copy> copies_;
};

}  // namespace lockstep::kernels
