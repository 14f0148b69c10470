// A rank's part of a Program (plan/program.h) as device kernels read it: flat arrays of plain numbers, made on the host
// and uploaded once.
//
// A lane is a group of `blocks` thread blocks. Each runs its slice of every instruction and counts for itself; a wait
// for a lane waits for all of its blocks. A Program needs no waits within a lane, whose instructions run in sequence;
// they are added here: a lane waits for itself if blocks access memory that other blocks of it have accessed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/plan/program.h"

namespace lockstep::executors::cuda {

// In addition to plan::Buffer: memory for packets, see below.
inline constexpr std::int32_t kPackets = 3;

struct DevicePlace {
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
  std::vector<DevicePlace> sources;
  std::vector<DevicePlace> destinations;
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
