// A rank's board: device memory that the other ranks of its group write to and that its own kernels poll. Signals are
// pushed to the rank that waits, so that all polling reads local memory. Values only grow from call to call, so that a
// collective may use other lanes and blocks than the one before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::executors::cuda {

inline constexpr int kMostSlots = 512;       // lanes times blocks, per rank
inline constexpr int kInstructionBits = 20;  // bits of a counter that count a lane's instructions

// Reason why a rank's kernels have stopped.
struct Trouble {
  std::int32_t lane;
  std::uint32_t instruction;  // position in the lane; equal to its number of instructions: it waited to leave
  std::int32_t waits_for_rank;
  std::int32_t waits_for_lane;
  std::uint32_t waits_for_instructions;  // 0: for the rank to enter the call
};

struct BoardHead {
  std::uint64_t last_call;    // the call that this rank has finished last
  std::uint32_t blocks_done;  // blocks that have finished the current call
  std::uint32_t abort;        // 1 + a rank that has failed, 0: none; all kernels stop. Written by all ranks
  std::uint32_t has_failed;   // not 0: a thread of this rank is reporting a failure
};

// Addresses of a rank's input and output in a call.
struct CallBases {
  std::byte* base[2];  // [plan::Buffer::input or output]
};

// A board as one rank sees it.
struct BoardView {
  BoardHead* head;
  Trouble* troubles;       // [rank that has failed], each written by that rank alone
  std::uint64_t* entered;  // [rank] the call that it has entered
  CallBases* bases;        // [call % 2][rank]
  std::uint64_t* done;     // [rank][slot] call << kInstructionBits | instructions; slot = lane * blocks + block
  std::byte* scratch[2];   // [call % 2] scratch of the board's rank
  std::byte* packets[2];   // [call % 2], see device_program.h
};

std::size_t board_bytes(int num_ranks);
// The board at address `memory`.
BoardView board_at(std::byte* memory, int num_ranks);

}  // namespace lockstep::executors::cuda
