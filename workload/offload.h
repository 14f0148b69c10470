// Which tensors of a rank are kept off its device, and where (Ren et al. 2021, ZeRO-Offload, arXiv:2101.06840;
// Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::workload {

// A place; none: on the device.
enum class Offload : std::uint8_t { none, host, file };
std::string_view name_of(Offload place);

// The place of each kind of tensor while no kernel uses it.
struct OffloadPlaces {
  Offload optimizer = Offload::none;    // master weights and moments, between updates
  Offload gradients = Offload::none;    // the reduced shards (ZeRO 2 and 3), from their reduction to the update
  Offload parameters = Offload::none;   // the shards of weights (ZeRO 3), but while they are gathered
  Offload activations = Offload::none;  // from the forward to the backward

  bool any() const { return *this != OffloadPlaces{}; }
  bool any_in(Offload place) const {
    return optimizer == place || gradients == place || parameters == place || activations == place;
  }
  friend bool operator==(const OffloadPlaces&, const OffloadPlaces&) = default;
};
// "none", "host" or "file" where that is the place of the optimizer's states alone, else such as
// "optimizer:file+parameters:host". Parsed by parse_layout("offload=...").
std::string text_of(const OffloadPlaces& places);

// An update brings offloaded tensors in pieces, some ahead of the one that is updated, and takes each back behind it
// (ZeRO-Infinity, section 6.2).

struct OffloadStaging {
  static constexpr std::int64_t kAlign = 4096;  // bytes: files are read and written in such blocks
  static constexpr std::int64_t kPieceElems = std::int64_t{1} << 18;  // of each state, f32
  std::int64_t states = 3;       // of an element: two moments, and the master weight where weights are narrower
  std::int64_t piece_elems = 0;  // at most, of a piece
  std::int64_t ahead = 2;        // pieces that are read before they are needed

  // Rooms for pieces on the device: those ahead, the one at work, and one that is written back.
  std::int64_t rooms() const { return ahead + 2; }
  // Of a piece: its states one behind the other, rounded up to whole blocks.
  std::int64_t bytes_of(std::int64_t elems) const {
    const auto bytes = static_cast<std::int64_t>(sizeof(float)) * states * elems;
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }
  // Of a room: a piece, and what its alignment takes.
  std::int64_t room_bytes() const { return bytes_of(piece_elems) + kAlign; }
};

// Of a store whose largest bucket has `largest_shard` elements on this rank.
inline OffloadStaging offload_staging(bool has_masters, std::int64_t largest_shard,
                                      std::int64_t piece_elems = OffloadStaging::kPieceElems) {
  return {.states = has_masters ? 3 : 2, .piece_elems = std::min(piece_elems, largest_shard)};
}

}  // namespace lockstep::workload
