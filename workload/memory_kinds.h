// Kinds of memory by use, shared by the prediction and the count of a rank's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "kernels/optimizer/rules.h"

namespace lockstep::workload {

enum class MemoryKind : std::uint8_t {
  weights,      // as kernels read them, in the compute dtype
  gradients,    // gradients of weights
  optimizer,    // master weights and the optimizer's states
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

// Tensors of a rank that are kept off its device, and their location (Ren et al. 2021, ZeRO-Offload, arXiv:2101.06840;
// Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857).

// A storage location; none: on the device.
enum class Offload : std::uint8_t { none, host, file };
std::string_view name_of(Offload place);

// The location of each kind of tensor while no kernel uses it.
struct OffloadPlaces {
  Offload optimizer = Offload::none;    // master weights and states, between updates
  Offload gradients = Offload::none;    // the reduced shards (ZeRO 2 and 3), from their reduction to the update
  Offload parameters = Offload::none;   // the shards of weights (ZeRO 3), except while they are gathered
  Offload activations = Offload::none;  // from the forward to the backward

  bool any() const { return *this != OffloadPlaces{}; }
  bool any_in(Offload place) const {
    return optimizer == place || gradients == place || parameters == place || activations == place;
  }
  friend bool operator==(const OffloadPlaces&, const OffloadPlaces&) = default;
};
// "none", "host" or "file" if only the optimizer's states are offloaded, otherwise such as
// "optimizer:file+parameters:host". Parsed by parse_layout("offload=...").
std::string text_of(const OffloadPlaces& places);

// Tensors that an update uses for each element of a rank's shards.
enum class OffloadKind : std::uint8_t { optimizer, gradients, parameters };
inline constexpr std::size_t kNumOffloadKinds = 3;

// An update copies offloaded tensors to the device in pieces, some ahead of the piece being updated, and copies changed
// pieces back after it (ZeRO-Infinity, section 6.2).
struct OffloadStaging {
  static constexpr std::int64_t kAlign = 4096;       // bytes: files are read and written in such blocks
  static constexpr std::int64_t kBlockElems = 2048;  // elements of 16 bits, per block
  static constexpr std::int64_t kPieceElems = std::int64_t{1} << 18;
  std::array<std::int64_t, kNumOffloadKinds> elem_bytes = {};  // by kind; 0: it stays on the device
  std::int64_t piece_elems = 0;                                // maximum per piece
  std::int64_t ahead = 2;                                      // pieces that are read before they are needed

  static std::int64_t whole_blocks(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
  // Device memory for a copy of `bytes`, with a reserve for alignment.
  static std::int64_t staged_bytes(std::int64_t bytes) { return whole_blocks(bytes) + kAlign; }

  // Buffers for pieces on the device: those read ahead, the current one, and one that is written back.
  std::int64_t rooms() const { return ahead + 2; }
  std::int64_t bytes_of(OffloadKind kind, std::int64_t elems) const {
    return whole_blocks(elem_bytes[static_cast<std::size_t>(kind)] * elems);
  }
  // Bytes of a piece: kind by kind.
  std::int64_t bytes_of(std::int64_t elems) const {
    std::int64_t bytes = 0;
    for (std::size_t kind = 0; kind < kNumOffloadKinds; ++kind) {
      bytes += bytes_of(static_cast<OffloadKind>(kind), elems);
    }
    return bytes;
  }
  std::int64_t room_bytes() const { return bytes_of(piece_elems) + kAlign; }
};

// Place of a copy among others in one buffer, whose sizes are rounded up to whole blocks.
struct CopySlot {
  std::int64_t offset = 0;  // a multiple of OffloadStaging::kAlign
  std::int64_t bytes = 0;
};

// Bytes per parameter of the optimizer's states (0 to 2 states) and of the master weights, which exist if weights are
// 16 bits: all are f32.
inline std::int64_t optimizer_elem_bytes(kernels::OptimizerKind optimizer, core::DType compute) {
  return 4 * (kernels::rule_of(optimizer).states() + (compute == core::DType::f32 ? 0 : 1));
}

// Bytes per updated element by kind, wherever they are.
inline std::array<std::int64_t, kNumOffloadKinds> offload_elem_bytes(kernels::OptimizerKind optimizer,
                                                                     core::DType compute, core::DType gradient) {
  return {optimizer_elem_bytes(optimizer, compute), static_cast<std::int64_t>(core::size_of(gradient)),
          static_cast<std::int64_t>(core::size_of(compute))};
}

// `elem_bytes`: 0 for kinds that stay on the device. `largest_shard`: elements that the rank has of the largest bucket.
// Whole shards of gradients and weights are copied at once, too: their pieces are whole blocks.
inline OffloadStaging offload_staging(const std::array<std::int64_t, kNumOffloadKinds>& elem_bytes,
                                      std::int64_t largest_shard,
                                      std::int64_t piece_elems = OffloadStaging::kPieceElems) {
  constexpr std::int64_t kBlock = OffloadStaging::kBlockElems;
  if (elem_bytes[1] + elem_bytes[2] > 0) piece_elems = (piece_elems + kBlock - 1) / kBlock * kBlock;
  return {.elem_bytes = elem_bytes, .piece_elems = std::min(piece_elems, largest_shard)};
}
inline OffloadStaging offload_staging(const OffloadPlaces& places, kernels::OptimizerKind optimizer,
                                      core::DType compute, core::DType gradient, std::int64_t largest_shard) {
  auto elem_bytes = offload_elem_bytes(optimizer, compute, gradient);
  if (places.optimizer == Offload::none) elem_bytes[0] = 0;
  if (places.gradients == Offload::none) elem_bytes[1] = 0;
  if (places.parameters == Offload::none) elem_bytes[2] = 0;
  return offload_staging(elem_bytes, largest_shard);
}

}  // namespace lockstep::workload
