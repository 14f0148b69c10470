// Packets: a slice of an instruction whose data from other ranks arrives as packets, see device_program.h.
#pragma once

#include <cstdint>

#include "collectives/executors/cuda/interpret.cuh"
#include "kernels/base/cuda_combine.cuh"

namespace lockstep::executors::cuda {

// Elements that a thread moves at once.
template <class T>
struct Unit {
  static constexpr int kItems = static_cast<int>(kUnitBytes / sizeof(T));
  union {
    T items[kItems];
    std::uint32_t words[2];
  };
  __device__ Unit() : words{0, 0} {}
};

// Stored and loaded as one word, which hardware never splits: data below, the call's number above.
__device__ __forceinline__ std::uint64_t packet_of(std::uint32_t data, std::uint64_t call) {
  return (call & 0xffffffffU) << 32 | data;
}

// Returns the packet that was loaded, or polls until it belongs to this call. False if the block has to stop.
__device__ inline bool await_packet(const Block& block, std::uint64_t* packet, std::uint64_t seen,
                                    const DevicePlace& source, std::uint32_t& data) {
  const std::uint32_t call = static_cast<std::uint32_t>(block.state.call);
  Patience patience(block);
  while (static_cast<std::uint32_t>(seen >> 32) != call) {
    if (!patience.goes_on({source.from, 0, source.made})) return false;
    seen = kernels::load_relaxed(packet);
  }
  data = static_cast<std::uint32_t>(seen);
  return true;
}

// Units of several sources that are loaded together: one load takes a round trip to memory, and so do many at once.
constexpr int kUnitsAtOnce = 4;

// Data of a source: its two packets as loaded, or its elements.
template <class T>
__device__ inline void look(const DeviceInstruction& one, bool packets, const std::byte* base, std::int64_t unit,
                            std::uint64_t (&seen)[2], Unit<T>& loaded) {
  if (packets) {
    auto* const words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(base)) + 2 * unit;
    seen[0] = kernels::load_relaxed(words);
    seen[1] = kernels::load_relaxed(words + 1);
    return;
  }
  const std::int64_t first = unit * Unit<T>::kItems;
#pragma unroll
  for (int i = 0; i < Unit<T>::kItems; ++i) {
    if (first + i < one.count) loaded.items[i] = reinterpret_cast<const T*>(base)[first + i];
  }
}

// Loads units of the sources from `from` on, at most kUnitsAtOnce. False if the block has to stop.
template <class T>
__device__ inline bool load_units(const Block& block, const DeviceInstruction& one, std::uint32_t from,
                                  std::int64_t unit, Unit<T> (&loaded)[kUnitsAtOnce]) {
  const auto packets = [&](std::uint32_t k) { return block.source(one, k).buffer == kPackets; };
  std::uint64_t seen[kUnitsAtOnce][2];
#pragma unroll
  for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
    if (from + k < one.num_sources) {
      look(one, packets(from + k), block.state.sources[from + k], unit, seen[k], loaded[k]);
    }
  }
#pragma unroll
  for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
    if (from + k >= one.num_sources || !packets(from + k)) continue;
    const std::byte* const base = block.state.sources[from + k];
    auto* const words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(base)) + 2 * unit;
    const DevicePlace& place = block.source(one, from + k);
    if (!await_packet(block, words, seen[k][0], place, loaded[k].words[0])) return false;
    if (!await_packet(block, words + 1, seen[k][1], place, loaded[k].words[1])) return false;
  }
  return true;
}

template <class T>
__device__ inline void store_unit(const Block& block, const DeviceInstruction& one, std::uint32_t destination,
                                  std::int64_t unit, const Unit<T>& made) {
  const DevicePlace& place = block.destination(one, destination);
  std::byte* const base = block.state.destinations[destination];
  if (place.buffer == kPackets) {
    auto* const packets = reinterpret_cast<std::uint64_t*>(base) + 2 * unit;
    kernels::store_relaxed(packets, packet_of(made.words[0], block.state.call));
    kernels::store_relaxed(packets + 1, packet_of(made.words[1], block.state.call));
    return;
  }
  const std::int64_t first = unit * Unit<T>::kItems;
#pragma unroll
  for (int i = 0; i < Unit<T>::kItems; ++i) {
    if (first + i < one.count) reinterpret_cast<T*>(base)[first + i] = made.items[i];
  }
}

// One source is copied bit by bit; several are combined in their order, in the wide type, and rounded once.
template <class T, core::ReduceOp kOp>
__device__ inline bool make_unit(const Block& block, const DeviceInstruction& one, std::int64_t unit, Unit<T>& made) {
  constexpr int kItems = Unit<T>::kItems;
  const std::int64_t average_over = one.completes != 0 ? block.args.average_over : 0;
  kernels::Wide<T> values[kItems];
#pragma unroll 1
  for (std::uint32_t from = 0; from < one.num_sources; from += kUnitsAtOnce) {
    Unit<T> loaded[kUnitsAtOnce];
    if (!load_units(block, one, from, unit, loaded)) return false;
    made = loaded[0];
    if (one.num_sources == 1 && average_over == 0) return true;
#pragma unroll
    for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
#pragma unroll
      for (int i = 0; i < kItems && from + k < one.num_sources; ++i) {
        const auto next = kernels::widened(loaded[k].items[i]);
        values[i] = from + k == 0 ? next : kernels::combined<kOp>(values[i], next);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    made.items[i] = kernels::narrowed<T>(average_over > 0 ? kernels::averaged(values[i], average_over) : values[i]);
  }
  return true;
}

// Runs the block's slice of an instruction. False if the thread has to stop.
template <class T, core::ReduceOp kOp>
__device__ inline bool packet_slice(const Block& block, const DeviceInstruction& one) {
  const std::int64_t units = (one.count + Unit<T>::kItems - 1) / Unit<T>::kItems;
  const std::int64_t begin = units * block.index / block.args.blocks;
  const std::int64_t end = units * (block.index + 1) / block.args.blocks;
  for (std::int64_t unit = begin + threadIdx.x; unit < end; unit += blockDim.x) {
    Unit<T> made;
    if (!make_unit<T, kOp>(block, one, unit, made)) return false;
    for (std::uint32_t k = 0; k < one.num_destinations; ++k) store_unit(block, one, k, unit, made);
  }
  return true;
}

}  // namespace lockstep::executors::cuda
