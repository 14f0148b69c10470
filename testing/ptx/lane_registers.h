// Registers of single lanes, for instructions that compute the same in each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {

using Handler = bool (*)(Warp&, const Op&, std::uint32_t);

// A register of one lane as a C++ type; bool is a predicate.
template <class T>
T read(Warp& warp, Slot slot, int lane) {
  if constexpr (std::is_same_v<T, bool>) {
    return (warp.predicate(slot) >> lane & 1U) != 0;
  } else if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(warp.words64(slot)[lane]);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(warp.words32(slot)[lane]);
  } else if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(static_cast<std::uint16_t>(warp.words32(slot)[lane]));
  } else {
    return std::bit_cast<T>(static_cast<std::uint8_t>(warp.words32(slot)[lane]));
  }
}
template <class T>
void write(Warp& warp, Slot slot, int lane, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    warp.set_bits(slot, lane, value ? 1 : 0);
  } else if constexpr (sizeof(T) == 8) {
    warp.words64(slot)[lane] = std::bit_cast<std::uint64_t>(value);
  } else if constexpr (sizeof(T) == 4) {
    warp.words32(slot)[lane] = std::bit_cast<std::uint32_t>(value);
  } else if constexpr (sizeof(T) == 2) {
    warp.words32(slot)[lane] = std::bit_cast<std::uint16_t>(value);
  } else {
    warp.words32(slot)[lane] = std::bit_cast<std::uint8_t>(value);
  }
}

inline void spread_poison(Warp& warp, const Op& op, std::uint32_t lanes) {
  std::uint32_t poison = 0;
  for (const Slot& from : op.from) poison |= warp.poison(from);
  for (const Slot& to : op.to) {
    warp.poison(to) = (warp.poison(to) & ~lanes) | (poison & lanes);
    warp.wrote(to);
  }
}

template <class F, class R, class... As, std::size_t... I>
void each_lane(Warp& warp, const Op& op, std::uint32_t lanes, std::index_sequence<I...>) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) write<R>(warp, op.to[0], lane, F{}(read<As>(warp, op.from[I], lane)...));
  } else {
    for_lanes(lanes, [&](int lane) { write<R>(warp, op.to[0], lane, F{}(read<As>(warp, op.from[I], lane)...)); });
  }
}

// Computes to[0] = F(from[0], ...) in each lane.
template <class F, class R, class... As>
bool apply(Warp& warp, const Op& op, std::uint32_t lanes) {
  each_lane<F, R, As...>(warp, op, lanes, std::index_sequence_for<As...>{});
  spread_poison(warp, op, lanes);
  return true;
}

}  // namespace lockstep::ptx
