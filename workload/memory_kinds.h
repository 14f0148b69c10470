// Kinds of memory by use, shared by the prediction and the count of a rank's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace lockstep::workload {

enum class MemoryKind : std::uint8_t {
  weights,      // as kernels read them, in the compute dtype
  gradients,    // gradients of weights
  optimizer,    // master weights and moments
  activations,  // kept by a forward for its backward, and tensors between parts
  buffers,      // messages, parts of collectives, scratch memory of kernels
};
inline constexpr std::size_t kNumMemoryKinds = 5;
inline std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, kNumMemoryKinds> kNames{"weights", "gradients", "optimizer", "activations",
                                                                 "buffers"};
  return kNames[static_cast<std::size_t>(kind)];
}

using BytesByKind = std::array<std::int64_t, kNumMemoryKinds>;
inline std::int64_t total_of(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

// Bytes held now, bytes held at the peak of all kinds together, and the peak of each kind.
class HeldBytes {
 public:
  explicit HeldBytes(const BytesByKind& now = {}) : now_(now), at_peak_(now), peak_of_each_(now) {}

  void change(MemoryKind kind, std::int64_t bytes) {
    const auto k = static_cast<std::size_t>(kind);
    now_[k] += bytes;
    peak_of_each_[k] = std::max(peak_of_each_[k], now_[k]);
    if (total_of(now_) > total_of(at_peak_)) at_peak_ = now_;
  }
  const BytesByKind& now() const { return now_; }
  const BytesByKind& at_peak() const { return at_peak_; }
  const BytesByKind& peak_of_each() const { return peak_of_each_; }

 private:
  BytesByKind now_;
  BytesByKind at_peak_;
  BytesByKind peak_of_each_;
};

}  // namespace lockstep::workload
