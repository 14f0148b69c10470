// Programs on GPUs: the boards by which ranks signal each other, and the program in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/plan/program.h"

namespace lockstep::executors::cuda {

// A rank's board: device memory that the other ranks of its group write to and that its own kernels poll. Signals are
// pushed to the rank that waits, so that all polling reads local memory. Values only grow from call to call, so that a
// collective may use other lanes and blocks than the one before.

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
  std::byte* packets[2];   // [call % 2], see below
};

std::size_t board_bytes(int num_ranks);
// The board at address `memory`.
BoardView board_at(std::byte* memory, int num_ranks);

// A rank's part of a Program (plan/program.h) as device kernels read it: flat arrays of plain numbers, made on the host
// and uploaded once.
//
// A lane is a group of `blocks` thread blocks. Each runs its slice of every instruction and counts for itself; a wait
// for a lane waits for all of its blocks. A Program needs no waits within a lane, whose instructions run in sequence;
// they are added here: a lane waits for itself if blocks access memory that its other blocks have accessed before.

// In addition to plan::Buffer: memory for packets, see below.
inline constexpr std::int32_t kPackets = 3;

struct DeviceAddress {
  std::int64_t offset_bytes;  // in packet memory: offset of the payload
  std::int32_t rank;
  std::int32_t buffer;  // plan::Buffer or kPackets
  std::int32_t from;    // rank that has produced the source's data
  std::uint32_t made;   // number of instructions that its lane has then done
};

// Waits until all blocks of the lane have done this many instructions; 0: until the rank has entered the call.
struct DeviceWait {
  std::int32_t rank;
  std::int32_t lane;
  std::uint32_t instructions;
};

struct DeviceInstruction {
  std::int64_t count;  // elements
  std::uint32_t first_wait;
  std::uint32_t num_waits;
  std::uint32_t first_source;
  std::uint32_t num_sources;
  std::uint32_t first_destination;
  std::uint32_t num_destinations;
  std::uint32_t first_listener;  // ranks that wait for this instruction, possibly this one among them
  std::uint32_t num_listeners;
  std::uint32_t completes;  // as plan::Instruction's, 0 or 1
};

struct DeviceLane {
  std::uint32_t first_instruction;
  std::uint32_t num_instructions;
};

struct DeviceProgram {
  std::vector<DeviceLane> lanes;
  std::vector<DeviceInstruction> instructions;
  std::vector<DeviceWait> waits;
  std::vector<DeviceAddress> sources;
  std::vector<DeviceAddress> destinations;
  std::vector<std::int32_t> listeners;
  std::vector<DeviceWait> exit_waits;
  std::uint32_t most_places = 0;  // most sources, or destinations, of an instruction
};

// `blocks`: per lane; with one, no waits within a lane are needed.
DeviceProgram make_device_program(const plan::Program& program, const collectives::Operation& operation, int rank,
                                  int blocks);

// Packets: words of 4 bytes, each stored together with the number of the call (NCCL's LL protocol, arXiv:2507.04786,
// section III), so that the reader needs no other signal. Data that a rank would read in another rank's scratch is
// pushed to it as packets by the rank that produces it, each piece to an address of its own; then no rank waits for
// others in any other way, and scratch may be overwritten at any time.
inline constexpr std::int64_t kUnitBytes = 8;  // payload of two packets: what a thread moves at once

struct PacketProgram {
  DeviceProgram program;
  std::int64_t packet_bytes = 0;  // per rank and for each of two alternating calls; the most of all ranks
};

// Returns nothing if the program accesses memory of other ranks other than scratch that one instruction has filled.
std::optional<PacketProgram> make_packet_program(const plan::Program& program, const collectives::Operation& operation,
                                                 int rank, int blocks);

// Offsets of the arrays in the image, in bytes, each aligned for any access.
struct ImageLayout {
  std::uint32_t lanes;
  std::uint32_t instructions;
  std::uint32_t waits;
  std::uint32_t sources;
  std::uint32_t destinations;
  std::uint32_t listeners;
  std::uint32_t exit_waits;
  std::uint32_t num_exit_waits;
  std::uint32_t size_bytes;  // size of the image, a multiple of 16
};

// A program's arrays in one piece, as it is uploaded to the device.
struct ProgramImage {
  std::vector<std::byte> bytes;
  ImageLayout at;
};
ProgramImage image_of(const DeviceProgram& program);

}  // namespace lockstep::executors::cuda
