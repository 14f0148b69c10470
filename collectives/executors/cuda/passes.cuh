// Passes over memory: a block's slice of an instruction, with the widest accesses that the alignment of its operands
// allows.
#pragma once

#include <cstdint>

#include "collectives/executors/cuda/interpret.cuh"
#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_geometry.h"

namespace lockstep::executors::cuda {

// Elements before the first wide access that is aligned in all operands, fewer than one access holds; -1 if alignments
// differ.
template <class T>
__device__ inline int elements_to_alignment(const BlockState& state, const DeviceInstruction& instruction) {
  const auto past = [](const std::byte* place) {
    return reinterpret_cast<std::uintptr_t>(place) % kernels::kAccessBytes;
  };
  const std::uintptr_t first = past(state.destinations[0]);
  bool differ = false;
  for (std::uint32_t k = 0; k < instruction.num_sources; ++k) differ |= past(state.sources[k]) != first;
  for (std::uint32_t k = 0; k < instruction.num_destinations; ++k) differ |= past(state.destinations[k]) != first;
  if (differ) return -1;
  return static_cast<int>((kernels::kAccessBytes - first) % kernels::kAccessBytes / sizeof(T));
}

// Address of element `at` of an operand of type T.
template <class T>
__device__ __forceinline__ T* elements(std::byte* place, std::int64_t at) {
  return reinterpret_cast<T*>(place) + at;
}
template <class T>
__device__ __forceinline__ const T* elements(const std::byte* place, std::int64_t at) {
  return reinterpret_cast<const T*>(place) + at;
}

// kPacks packs of kItems neighbouring elements each, `stride` elements apart: as many loads in flight hide memory
// latency.
template <class T, int kItems, int kPacks>
struct LoadedPacks {
  kernels::Pack<T, kItems> packs[kPacks];

  __device__ __forceinline__ void load(const T* from, std::int64_t stride, std::int64_t left) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * stride < left) packs[p] = kernels::Pack<T, kItems>::load(from + p * stride);
    }
  }
  __device__ __forceinline__ void store(T* to, std::int64_t stride, std::int64_t left) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * stride < left) packs[p].store(to + p * stride);
    }
  }
};

// Calls work(at, stride, left) for all packs of elements [begin, end): the thread handles kPacks from `at` on, `stride`
// apart, as long as their distance is less than `left`.
template <int kItems, int kPacks, class Work>
__device__ __forceinline__ void for_each_packs(std::int64_t begin, std::int64_t end, Work&& work) {
  const std::int64_t stride = std::int64_t{blockDim.x} * kItems;
  for (std::int64_t at = begin + std::int64_t{threadIdx.x} * kItems; at < end; at += kPacks * stride) {
    work(at, stride, end - at);
  }
}

// Moves elements [begin, end) of an instruction with one source, by the threads of the block.
template <class T, int kItems>
__device__ __forceinline__ void copy_range(const BlockState& state, const DeviceInstruction& instruction,
                                           std::int64_t begin, std::int64_t end) {
  constexpr int kPacks = 8;
  for_each_packs<kItems, kPacks>(begin, end, [&](std::int64_t at, std::int64_t stride, std::int64_t left) {
    LoadedPacks<T, kItems, kPacks> packs;
    packs.load(elements<T>(state.sources[0], at), stride, left);
    for (std::uint32_t k = 0; k < instruction.num_destinations; ++k) {
      packs.store(elements<T>(state.destinations[k], at), stride, left);
    }
  });
}

// The same with several sources, or an average: combined in the sources' order, in the wide type, rounded once. Loads
// of two sources are in flight at once: for f32 2 x 64 bytes per thread, 64 KiB in two blocks of 256, for 16-bit
// elements half of that; some 25 KiB per multiprocessor hide the latency of memory (H200: 4.8 TB/s, about 700 ns, 132
// multiprocessors).
template <class T, core::ReduceOp kOp, int kItems>
__device__ __forceinline__ void combine_range(const BlockState& state, const DeviceInstruction& instruction,
                                              std::int64_t average_over, std::int64_t begin, std::int64_t end) {
  constexpr int kMostValues = 16;  // in registers, per thread
  constexpr int kPacks = kItems * 4 <= kMostValues ? 4 : (kItems < kMostValues ? kMostValues / kItems : 1);
  for_each_packs<kItems, kPacks>(begin, end, [&](std::int64_t at, std::int64_t stride, std::int64_t left) {
    LoadedPacks<T, kItems, kPacks> packs;
    kernels::Wide<T> values[kPacks][kItems];
    packs.load(elements<T>(state.sources[0], at), stride, left);
#pragma unroll
    for (int i = 0; i < kPacks * kItems; ++i) {
      values[i / kItems][i % kItems] = kernels::widened(packs.packs[i / kItems].items[i % kItems]);
    }
#pragma unroll 2
    for (std::uint32_t k = 1; k < instruction.num_sources; ++k) {
      packs.load(elements<T>(state.sources[k], at), stride, left);
#pragma unroll
      for (int i = 0; i < kPacks * kItems; ++i) {
        auto& value = values[i / kItems][i % kItems];
        value = kernels::combined<kOp>(value, kernels::widened(packs.packs[i / kItems].items[i % kItems]));
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * stride >= left) continue;  // not loaded, and divisions and roundings branch on their operands
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const auto value = values[p][i];
        packs.packs[p].items[i] =
            kernels::narrowed<T>(average_over > 0 ? kernels::averaged(value, average_over) : value);
      }
    }
    for (std::uint32_t k = 0; k < instruction.num_destinations; ++k) {
      packs.store(elements<T>(state.destinations[k], at), stride, left);
    }
  });
}

template <class T, core::ReduceOp kOp, int kItems>
__device__ __forceinline__ void do_range(const Block& block, const DeviceInstruction& instruction, std::int64_t begin,
                                         std::int64_t end) {
  const std::int64_t average_over = instruction.completes != 0 ? block.args.average_over : 0;
  if (instruction.num_sources == 1 && average_over == 0) {
    copy_range<T, kItems>(block.state, instruction, begin, end);
  } else {
    combine_range<T, kOp, kItems>(block.state, instruction, average_over, begin, end);
  }
}

// Runs the block's slice of an instruction. Slice boundaries follow from the count alone, as later instructions rely on
// them; elements at the ends of a slice that wide accesses cannot cover are moved one by one.
template <class T, core::ReduceOp kOp>
__device__ __forceinline__ void pass_slice(const Block& block, const DeviceInstruction& instruction) {
  constexpr int kItems = static_cast<int>(kernels::kAccessBytes / sizeof(T));
  const std::int64_t packs = instruction.count / kItems;
  const std::int64_t blocks = block.args.blocks;
  const bool last = block.index + 1 == blocks;
  const std::int64_t begin = packs * block.index / blocks * kItems;
  const std::int64_t end = last ? instruction.count : packs * (block.index + 1) / blocks * kItems;
  const int skew = elements_to_alignment<T>(block.state, instruction);
  const std::int64_t wide_begin = skew < 0 || begin + skew > end ? end : begin + skew;
  const std::int64_t wide_end = wide_begin + (end - wide_begin) / kItems * kItems;
  do_range<T, kOp, kItems>(block, instruction, wide_begin, wide_end);
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    do_range<T, kOp, 1>(block, instruction, side == 0 ? begin : wide_end, side == 0 ? wide_begin : end);
  }
}

// Packets: a slice of an instruction whose data from other ranks arrives as packets, see device_program.h.

// Elements that a thread moves at once.
template <class T>
struct PacketUnit {
  static constexpr int kItems = static_cast<int>(kUnitBytes / sizeof(T));
  union {
    T items[kItems];
    std::uint32_t words[2];
  };
  __device__ PacketUnit() : words{0, 0} {}
};

// Stored and loaded as one word, which hardware never splits: data below, the call's number above.
__device__ __forceinline__ std::uint64_t packet_of(std::uint32_t data, std::uint64_t call) {
  return (call & 0xffffffffU) << 32 | data;
}

// Returns the packet that was loaded, or polls until it belongs to this call. False if the block has to stop.
__device__ inline bool await_packet(const Block& block, std::uint64_t* packet, std::uint64_t seen,
                                    const DeviceAddress& source, std::uint32_t& data) {
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
__device__ inline void look(const DeviceInstruction& instruction, bool packets, const std::byte* base,
                            std::int64_t unit, std::uint64_t (&seen)[2], PacketUnit<T>& loaded) {
  if (packets) {
    auto* const words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(base)) + 2 * unit;
    seen[0] = kernels::load_relaxed(words);
    seen[1] = kernels::load_relaxed(words + 1);
    return;
  }
  const std::int64_t first = unit * PacketUnit<T>::kItems;
#pragma unroll
  for (int i = 0; i < PacketUnit<T>::kItems; ++i) {
    if (first + i < instruction.count) loaded.items[i] = reinterpret_cast<const T*>(base)[first + i];
  }
}

// Loads units of the sources from `from` on, at most kUnitsAtOnce. False if the block has to stop.
template <class T>
__device__ inline bool load_units(const Block& block, const DeviceInstruction& instruction, std::uint32_t from,
                                  std::int64_t unit, PacketUnit<T> (&loaded)[kUnitsAtOnce]) {
  const auto packets = [&](std::uint32_t k) { return block.source(instruction, k).buffer == kPackets; };
  std::uint64_t seen[kUnitsAtOnce][2];
#pragma unroll
  for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
    if (from + k < instruction.num_sources) {
      look(instruction, packets(from + k), block.state.sources[from + k], unit, seen[k], loaded[k]);
    }
  }
#pragma unroll
  for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
    if (from + k >= instruction.num_sources || !packets(from + k)) continue;
    const std::byte* const base = block.state.sources[from + k];
    auto* const words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(base)) + 2 * unit;
    const DeviceAddress& place = block.source(instruction, from + k);
    if (!await_packet(block, words, seen[k][0], place, loaded[k].words[0])) return false;
    if (!await_packet(block, words + 1, seen[k][1], place, loaded[k].words[1])) return false;
  }
  return true;
}

template <class T>
__device__ inline void store_unit(const Block& block, const DeviceInstruction& instruction, std::uint32_t destination,
                                  std::int64_t unit, const PacketUnit<T>& result) {
  const DeviceAddress& place = block.destination(instruction, destination);
  std::byte* const base = block.state.destinations[destination];
  if (place.buffer == kPackets) {
    auto* const packets = reinterpret_cast<std::uint64_t*>(base) + 2 * unit;
    kernels::store_relaxed(packets, packet_of(result.words[0], block.state.call));
    kernels::store_relaxed(packets + 1, packet_of(result.words[1], block.state.call));
    return;
  }
  const std::int64_t first = unit * PacketUnit<T>::kItems;
#pragma unroll
  for (int i = 0; i < PacketUnit<T>::kItems; ++i) {
    if (first + i < instruction.count) reinterpret_cast<T*>(base)[first + i] = result.items[i];
  }
}

// One source is copied bit by bit; several are combined in their order, in the wide type, and rounded once.
template <class T, core::ReduceOp kOp>
__device__ inline bool make_unit(const Block& block, const DeviceInstruction& instruction, std::int64_t unit,
                                 PacketUnit<T>& result) {
  constexpr int kItems = PacketUnit<T>::kItems;
  const std::int64_t average_over = instruction.completes != 0 ? block.args.average_over : 0;
  kernels::Wide<T> values[kItems];
#pragma unroll 1
  for (std::uint32_t from = 0; from < instruction.num_sources; from += kUnitsAtOnce) {
    PacketUnit<T> loaded[kUnitsAtOnce];
    if (!load_units(block, instruction, from, unit, loaded)) return false;
    result = loaded[0];
    if (instruction.num_sources == 1 && average_over == 0) return true;
#pragma unroll
    for (std::uint32_t k = 0; k < kUnitsAtOnce; ++k) {
#pragma unroll
      for (int i = 0; i < kItems && from + k < instruction.num_sources; ++i) {
        const auto next = kernels::widened(loaded[k].items[i]);
        values[i] = from + k == 0 ? next : kernels::combined<kOp>(values[i], next);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    result.items[i] = kernels::narrowed<T>(average_over > 0 ? kernels::averaged(values[i], average_over) : values[i]);
  }
  return true;
}

// Runs the block's slice of an instruction. False if the thread has to stop.
template <class T, core::ReduceOp kOp>
__device__ inline bool packet_slice(const Block& block, const DeviceInstruction& instruction) {
  const std::int64_t units = (instruction.count + PacketUnit<T>::kItems - 1) / PacketUnit<T>::kItems;
  const std::int64_t begin = units * block.index / block.args.blocks;
  const std::int64_t end = units * (block.index + 1) / block.args.blocks;
  for (std::int64_t unit = begin + threadIdx.x; unit < end; unit += blockDim.x) {
    PacketUnit<T> result;
    if (!make_unit<T, kOp>(block, instruction, unit, result)) return false;
    for (std::uint32_t k = 0; k < instruction.num_destinations; ++k) store_unit(block, instruction, k, unit, result);
  }
  return true;
}

}  // namespace lockstep::executors::cuda
