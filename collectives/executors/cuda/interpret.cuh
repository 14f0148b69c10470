// Interpreter of device programs: runs one block of a lane in one call. passes.cuh moves its slices.
#pragma once

#include <cstdint>

#include "collectives/executors/cuda/device_program.h"
#include "kernels/base/cuda_sync.cuh"

namespace lockstep::executors::cuda {

// Arguments of the kernel.
struct Call {
  const std::byte* image;  // the program, see device_program.h
  ImageLayout at;
  const BoardView* boards;  // [rank], as this rank sees them
  BoardView board;          // this rank's own: kept here, so that polling does not begin with a load from memory
  CallBases mine;
  std::uint64_t timeout_ns;   // timeout of every wait
  std::int64_t average_over;  // divisor of a completed sum; 0: no average
  std::int32_t rank;
  std::int32_t num_ranks;
  std::int32_t blocks;   // per lane
  kernels::Reach reach;  // scope of memory ordering: all ranks
};

inline constexpr int kMostPlaces = 128;  // sources, or destinations, of an instruction
inline constexpr int kNearRanks = 16;
inline constexpr std::uint32_t kNearImageBytes = 24 << 10;

// A block's state in shared memory. Values that are read there once at the start cost one memory access in all.
struct BlockState {
  alignas(16) uint4 image[kNearImageBytes / sizeof(uint4)];
  std::uint64_t call;
  BoardView boards[kNearRanks];
  const std::byte* sources[kMostPlaces];
  std::byte* destinations[kMostPlaces];
};

// A block's constants and position.
struct Block {
  const Call& args;
  BlockState& state;
  int lane;
  int index;                  // in the lane
  std::uint32_t instruction;  // the one at which the lane is
  const std::byte* image;     // in shared memory, or as in args; so are the boards
  const BoardView* boards;

  __device__ const BoardView& board() const { return args.board; }
  __device__ const BoardView& board_of(int rank) const { return boards[rank]; }
  template <class T>
  __device__ const T* array(std::uint32_t at) const {
    return reinterpret_cast<const T*>(image + at);
  }
  __device__ const DeviceAddress& source(const DeviceInstruction& instruction, std::uint32_t k) const {
    return array<DeviceAddress>(args.at.sources)[instruction.first_source + k];
  }
  __device__ const DeviceAddress& destination(const DeviceInstruction& instruction, std::uint32_t k) const {
    return array<DeviceAddress>(args.at.destinations)[instruction.first_destination + k];
  }
};

// The first thread of the rank that fails signals all ranks. Uses stores only: not every link between GPUs supports
// atomic operations.
__device__ inline void tell_of_trouble(const Block& block, DeviceWait wait) {
  const Call& args = block.args;
  if (atomicExch(&block.board().head->has_failed, 1U) != 0) return;
  for (int rank = 0; rank < args.num_ranks; ++rank) {
    const BoardView& its = block.board_of(rank);
    its.troubles[args.rank] = {.lane = block.lane,
                               .instruction = block.instruction,
                               .waits_for_rank = wait.rank,
                               .waits_for_lane = wait.lane,
                               .waits_for_instructions = wait.instructions};
    kernels::store_release(&its.head->abort, static_cast<std::uint32_t>(args.rank) + 1, args.reach);
  }
}

// Bounds a poll loop: it ends at the deadline, or when a rank has failed.
class Patience {
 public:
  __device__ explicit Patience(const Block& block) : block_(block) {}
  // Call it after each poll without success; `wait` is reported at the deadline.
  __device__ bool goes_on(DeviceWait wait) {
    if (++looks_ % kLooks != 0) return true;
    if (kernels::load_relaxed(&block_.board().head->abort) != 0) return false;
    const std::uint64_t now = kernels::device_nanoseconds();
    if (since_ == 0) since_ = now;
    if (now - since_ > block_.args.timeout_ns) {
      tell_of_trouble(block_, wait);
      return false;
    }
    kernels::give_way();
    return true;
  }

 private:
  static constexpr unsigned kLooks = 256;  // polls between two readings of the clock
  const Block& block_;
  std::uint64_t since_ = 0;
  unsigned looks_ = 0;
};

// Polls until the word reaches `target`; false if the block has to stop. Polls are relaxed loads: an acquiring load
// would invalidate the multiprocessor's cache each time. The fence after the last one pairs with the release that
// stored the word.
__device__ inline bool await_word(const Block& block, std::uint64_t* word, std::uint64_t target, DeviceWait wait) {
  Patience patience(block);
  while (kernels::load_relaxed(word) < target) {
    if (!patience.goes_on(wait)) return false;
  }
  kernels::acquire_fence(block.args.reach);
  return true;
}

// Waits for one word of a wait: a wait for instructions has blocks() words, a wait for an entry has one.
__device__ inline bool await_part(const Block& block, DeviceWait wait, int part) {
  const std::uint64_t call = block.state.call;
  if (wait.instructions == 0) {
    return part > 0 || await_word(block, &block.board().entered[wait.rank], call, wait);
  }
  const int slot = wait.lane * block.args.blocks + part;
  std::uint64_t* word = &block.board().done[wait.rank * kMostSlots + slot];
  return await_word(block, word, call << kInstructionBits | wait.instructions, wait);
}

// Called by all threads of the block, after a barrier since the last instruction; the threads share the words to poll.
// False if the block has to stop.
__device__ inline bool await_all(const Block& block, const DeviceWait* waits, std::uint32_t num_waits) {
  if (num_waits == 0) return true;
  const int words = static_cast<int>(num_waits) * block.args.blocks;
  bool stop = false;
  for (int w = static_cast<int>(threadIdx.x); w < words && !stop; w += static_cast<int>(blockDim.x)) {
    stop = !await_part(block, waits[w / block.args.blocks], w % block.args.blocks);
  }
  return __syncthreads_or(stop) == 0;
}

// The thread's index from the end, for work that runs next to the first threads' work.
__device__ inline unsigned thread_from_end() {
  return blockDim.x - 1 - threadIdx.x;
}

// Copies the program and the boards' addresses to shared memory if they fit.
__device__ inline void bring_near(const Block& block) {
  const Call& args = block.args;
  if (args.at.size_bytes <= kNearImageBytes) {
    const auto* from = reinterpret_cast<const uint4*>(args.image);
    for (unsigned k = thread_from_end(); k < args.at.size_bytes / sizeof(uint4); k += blockDim.x) {
      block.state.image[k] = from[k];
    }
  }
  if (args.num_ranks <= kNearRanks) {
    for (int rank = static_cast<int>(thread_from_end()); rank < args.num_ranks; rank += static_cast<int>(blockDim.x)) {
      block.state.boards[rank] = args.boards[rank];
    }
  }
}

// Call it after a barrier of all threads.
__device__ inline void use_what_is_near(Block& block) {
  if (block.args.at.size_bytes <= kNearImageBytes) block.image = reinterpret_cast<const std::byte*>(block.state.image);
  if (block.args.num_ranks <= kNearRanks) block.boards = block.state.boards;
}

// True if the call may begin: no rank has failed (peers' memory may be gone then), and all ranks have entered the
// previous call, so that none is in the call before that, whose half of scratch, packets and addresses this call uses.
// All loads are issued at once, by different threads or before the first value is used, which costs one memory latency.
__device__ inline bool may_begin(Block& block) {
  const Call& args = block.args;
  const BoardView& mine = block.board();
  const std::uint64_t call = mine.head->last_call + 1;
  const std::uint32_t aborted = kernels::load_relaxed(&mine.head->abort);
  bring_near(block);
  bool stop = false;
  for (int rank = static_cast<int>(threadIdx.x); rank < args.num_ranks && !stop; rank += static_cast<int>(blockDim.x)) {
    stop = !await_word(block, &mine.entered[rank], call - 1, {rank, 0, 0});
  }
  if (threadIdx.x == 0) block.state.call = call;
  stop = stop || aborted != 0;
  if (__syncthreads_or(stop) != 0) return false;
  use_what_is_near(block);
  return true;
}

// The first block signals that this rank has entered. Its last threads do it: a release takes a round trip to memory
// until earlier stores are visible, and the first threads have other work meanwhile.
__device__ inline void enter(const Block& block) {
  if (block.lane > 0 || block.index > 0) return;
  const Call& args = block.args;
  const std::uint64_t call = block.state.call;
  for (int rank = static_cast<int>(thread_from_end()); rank < args.num_ranks; rank += static_cast<int>(blockDim.x)) {
    const BoardView& its = block.board_of(rank);
    its.bases[static_cast<int>(call % 2) * args.num_ranks + args.rank] = args.mine;
    kernels::store_release(&its.entered[args.rank], call, args.reach);
  }
}

__device__ inline std::byte* address_of(const Block& block, const DeviceAddress& place) {
  const int half = static_cast<int>(block.state.call % 2);
  const BoardView& its = block.board_of(place.rank);
  if (place.buffer == kPackets) return its.packets[half] + 2 * place.offset_bytes;
  if (place.buffer == static_cast<std::int32_t>(plan::Buffer::scratch)) return its.scratch[half] + place.offset_bytes;
  if (place.rank == block.args.rank) return block.args.mine.base[place.buffer] + place.offset_bytes;
  return block.board().bases[half * block.args.num_ranks + place.rank].base[place.buffer] + place.offset_bytes;
}

// Called by all threads; computes the addresses of an instruction's operands.
__device__ inline void find_places(const Block& block, const DeviceInstruction& instruction) {
  for (std::uint32_t k = threadIdx.x; k < instruction.num_sources; k += blockDim.x) {
    block.state.sources[k] = address_of(block, block.source(instruction, k));
  }
  for (std::uint32_t k = threadIdx.x; k < instruction.num_destinations; k += blockDim.x) {
    block.state.destinations[k] = address_of(block, block.destination(instruction, k));
  }
  __syncthreads();
}

// Signals the waiting ranks that this block has done the instruction. A barrier of all threads came before: it orders
// the block's stores before the release.
__device__ inline void tell_listeners(const Block& block, const DeviceInstruction& instruction) {
  const Call& args = block.args;
  const int slot = block.lane * args.blocks + block.index;
  const std::uint64_t value = block.state.call << kInstructionBits | (block.instruction + 1);
  for (std::uint32_t k = threadIdx.x; k < instruction.num_listeners; k += blockDim.x) {
    const int rank = block.array<std::int32_t>(args.at.listeners)[instruction.first_listener + k];
    kernels::store_release(&block.board_of(rank).done[args.rank * kMostSlots + slot], value, args.reach);
  }
}

// The last block that ends counts the call.
__device__ inline void leave(const Block& block) {
  __syncthreads();
  if (threadIdx.x > 0) return;
  BoardHead* head = block.board().head;
  const unsigned all = gridDim.x;
  if (all > 1 && atomicAdd(&head->blocks_done, 1U) + 1 < all) return;
  head->blocks_done = 0;
  head->last_call = block.state.call;
}

// True if the lane has data to move before its first wait.
__device__ inline bool passes_at_once(const Block& block, DeviceLane lane) {
  if (lane.num_instructions == 0) return false;
  const auto& first = block.array<DeviceInstruction>(block.args.at.instructions)[lane.first_instruction];
  return first.num_waits == 0 && first.num_destinations > 0;
}

// Called by all threads of a block, for one lane of a call. do_slice(one) runs the block's slice of an instruction
// whose addresses are computed; it returns whether the thread may go on. A rank enters before its first wait, as others
// may wait for its entry at the same point, or else during its first pass (with packets no rank waits for it in this
// call).
template <class DoSlice>
__device__ void interpret(Block& block, DoSlice&& do_slice) {
  if (!may_begin(block)) return;
  const ImageLayout& at = block.args.at;
  const DeviceLane lane = block.array<DeviceLane>(at.lanes)[block.lane];
  const bool begins_with_pass = passes_at_once(block, lane);
  if (!begins_with_pass) enter(block);
  for (block.instruction = 0; block.instruction < lane.num_instructions; ++block.instruction) {
    const DeviceInstruction& one =
        block.array<DeviceInstruction>(at.instructions)[lane.first_instruction + block.instruction];
    if (!await_all(block, block.array<DeviceWait>(at.waits) + one.first_wait, one.num_waits)) return;
    bool stop = false;
    if (one.num_destinations > 0) {
      find_places(block, one);
      if (begins_with_pass && block.instruction == 0) enter(block);
      stop = !do_slice(one);
    }
    if (__syncthreads_or(stop) != 0) return;
    tell_listeners(block, one);
  }
  const bool waits_to_leave = block.lane == 0 && block.index == 0;
  const auto* exit_waits = block.array<DeviceWait>(at.exit_waits);
  if (waits_to_leave && !await_all(block, exit_waits, at.num_exit_waits)) return;
  leave(block);
}

}  // namespace lockstep::executors::cuda
