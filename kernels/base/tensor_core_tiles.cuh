// Where tensor cores find their operands: sums in a warp's registers, tiles in shared memory, their descriptors for
// wgmma, and a ring of buffers whose barriers producer and consumers share (compute capability 9.0a).
//
// A tile holds rows of a matrix in panels of 64 columns, [columns / 64][rows][64]: rows of 128 bytes, whose 16-byte
// pieces are swizzled by the row's number modulo 8, so that 8 rows of a column of pieces lie in different banks. A tile
// begins at a multiple of 1024 bytes, where the pattern begins. (Plain bulk copies without a tensor map cannot swizzle,
// and wgmma accepts rows of 128 bytes in no other form.)
//
// The kernels are templates over their lane: HopperLane on a device, EmulatedHopperLane on the CPU.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// A lane's part of a warp's [16, 8 n] sums, laid out as in mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"):
// element e of block b is in row 8 (e / 2) + lane / 4 and column 8 b + 2 (lane % 4) + e % 2.
__device__ inline int sum_row(int lane, int element) {
  return 8 * (element / 2) + lane / 4;
}
__device__ inline int sum_column(int lane, int block, int element) {
  return 8 * block + 2 * (lane % 4) + element % 2;
}

inline constexpr int kGroupWarps = 4;  // per warpgroup
inline constexpr int kConsumers = 2;   // number of warpgroups
inline constexpr int kHopperThreads = 32 * kGroupWarps * (1 + kConsumers);
inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 128;

// Registers per thread. All threads have 168 at launch: 65,536 / 384, in steps of 8.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * 168);

template <int kRows, int kColumns>
inline constexpr int kTileBytes = kRows* kColumns / kPanelColumns* kPanelRowBytes;

// PTX ISA, "Matrix descriptor format" of wgmma: address, leading and stride byte offset in units of 16 bytes; swizzle 1
// means 128 bytes. Stride: from 8 rows of shared memory to the next 8. Leading: from one panel to the next, for
// matrices whose depth is rows of shared memory.
__device__ constexpr std::uint64_t descriptor(std::uint32_t address, int leading_bytes) {
  constexpr std::uint64_t kStride = 8 * kPanelRowBytes / 16;
  constexpr std::uint64_t kSwizzle128 = 1;
  return static_cast<std::uint64_t>(address & 0x3ffffU) >> 4 | static_cast<std::uint64_t>(leading_bytes / 16) << 16 |
         kStride << 32 | kSwizzle128 << 62;
}

// The part of a tile that a product takes.
template <int kRows>
struct TileInShared {
  std::uint32_t address;

  // Rows begin at `row`, a multiple of 8; columns `column` to `column` + 15 are the depth.
  __device__ std::uint64_t along_rows(int row, int column) const {
    const int offset = (column / kPanelColumns * kRows + row) * kPanelRowBytes + column % kPanelColumns * 2;
    return descriptor(address + static_cast<std::uint32_t>(offset), 16);
  }
  // Rows `row` to `row` + 15 are the depth; columns begin at `column`, a multiple of 64.
  __device__ std::uint64_t across_rows(int row, int column) const {
    const int offset = (column / kPanelColumns * kRows + row) * kPanelRowBytes;
    return descriptor(address + static_cast<std::uint32_t>(offset), kRows * kPanelRowBytes);
  }
};

// A ring of buffers. The parity belongs to the phase that the next fill ends; emptying the buffer ends the phase
// before.
template <int kStages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) parity ^= 1;
  }
};

// The barriers of a ring, [stages] full and [stages] empty.
template <int kStages>
struct RingBarriers {
  static constexpr int kBytes = 2 * kStages * 8;
  std::uint32_t address;

  __device__ std::uint32_t full(const Ring<kStages>& at) const {
    return address + 8 * static_cast<std::uint32_t>(at.stage);
  }
  __device__ std::uint32_t empty(const Ring<kStages>& at) const {
    return address + 8 * static_cast<std::uint32_t>(kStages + at.stage);
  }
  // A phase of filling needs this many arrivals and bytes; each warp of a consumer arrives when it has finished.
  template <class Lane>
  __device__ void begin(Lane& lane, int fills) const {
    for (Ring<kStages> at; at.parity == 0; at.next()) {
      lane.begin_barrier(full(at), fills);
      lane.begin_barrier(empty(at), kConsumers * kGroupWarps);
    }
  }
  template <class Lane>
  __device__ void wait_full(Lane& lane, const Ring<kStages>& at) const {
    lane.wait(full(at), at.parity);
  }
  // The producer waits for the buffer that it fills next.
  template <class Lane>
  __device__ void wait_empty(Lane& lane, const Ring<kStages>& at) const {
    lane.wait(empty(at), at.parity ^ 1);
  }
  // Call after waiting for the products that have read the buffer, when the whole warp has passed that wait.
  template <class Lane>
  __device__ void release(Lane& lane, const Ring<kStages>& at) const {
    if (lane.lane() == 0) lane.arrive(empty(at));
  }
};

// Loads a tile of kRows rows, which begins at `column` of the matrix; its bytes are expected at the barrier already.
// Called by one thread.
template <int kRows, int kColumns, class Lane>
__device__ void load_panels(Lane& lane, std::uint32_t to, const typename Lane::Map& map, std::uint32_t barrier,
                            int column, int head, int row, int batch) {
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {
    lane.load_box(to + static_cast<std::uint32_t>(panel * kTileBytes<kRows, kPanelColumns>), map, barrier,
                  column + panel * kPanelColumns, head, row, batch);
  }
}

// The same for a whole head, with its bytes.
template <int kRows, int kColumns, class Lane>
__device__ void load_tile(Lane& lane, std::uint32_t to, const typename Lane::Map& map, std::uint32_t barrier, int head,
                          int row, std::int64_t batch) {
  lane.arrive_expecting(barrier, kTileBytes<kRows, kColumns>);
  load_panels<kRows, kColumns>(lane, to, map, barrier, 0, head, row, static_cast<int>(batch));
}

}  // namespace lockstep::kernels
