// A rank's board: device memory of its own that the ranks of its group write to and that its kernels look at. What is
// waited for is pushed to who waits, so that all looking is at near memory. Numbers only grow, from call to call, so
// that a collective may use other lanes and blocks than the one before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::executors::cuda {

inline constexpr int kMostSlots = 512;       // lanes times blocks, of a rank
inline constexpr int kInstructionBits = 20;  // of a lane's instructions in what is counted

// The reason why the ranks' kernels have stopped.
struct Trouble {
  std::int32_t lane;
  std::uint32_t instruction;  // of the lane; as many as it has: on the way out
  std::int32_t waits_for_rank;
  std::int32_t waits_for_lane;
  std::uint32_t waits_for_instructions;  // 0: to enter
};

struct BoardHead {
  std::uint64_t last_call;    // that this rank has done
  std::uint32_t blocks_done;  // of the call under way
  std::uint32_t abort;        // 1 + a rank that has failed, 0: none; all stop. Written by all
  std::uint32_t has_failed;   // not 0: a thread of this rank is telling so
};

// Where a rank's input and output lie in a call.
struct CallBases {
  std::byte* base[2];  // [plan::Buffer::input or output]
};

// A board as one rank sees it.
struct BoardView {
  BoardHead* head;
  Trouble* troubles;       // [rank that has failed], each written by that rank alone
  std::uint64_t* entered;  // [rank]: the call that it has entered
  CallBases* bases;        // [call % 2][rank]
  std::uint64_t* done;     // [rank][slot]: call << kInstructionBits | instructions; slot = lane * blocks + block
  std::byte* scratch[2];   // [call % 2] of the board's rank
  std::byte* packets[2];   // [call % 2], see device_program.h
};

std::size_t board_bytes(int num_ranks);
// The board that lies at `memory`.
BoardView board_at(std::byte* memory, int num_ranks);

}  // namespace lockstep::executors::cuda
