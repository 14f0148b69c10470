// A rank's part of a Program (plan/program.h) as device kernels read it: flat arrays of plain numbers, made on the host
// and uploaded once.
//
// A lane is a group of `blocks` thread blocks. Each takes its slice of every instruction, counts for itself, and a wait
// for a lane waits for all blocks of it. What a Program need not say, as a lane does one instruction after the other,
// is added here: a lane waits for itself where blocks touch what other blocks of it have touched before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/plan/program.h"

namespace lockstep::executors::cuda {

// Beside plan::Buffer's: memory for packets, see below.
inline constexpr std::int32_t kPackets = 3;

struct DevicePlace {
  std::int64_t offset_bytes;  // of packets: of what they carry
  std::int32_t rank;
  std::int32_t buffer;  // plan::Buffer or kPackets
  std::int32_t from;    // the rank that has made what a source holds
  std::uint32_t made;   // how many instructions of its lane that rank has then done
};

// All blocks of the lane have done so many instructions; 0: the rank has entered the call.
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
  std::uint32_t first_listener;  // ranks that wait for just this instruction, maybe this one among them
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
  std::uint32_t most_places = 0;  // sources, or destinations, of an instruction
};

// `blocks`: of a lane; a single one needs no waits for itself.
DeviceProgram make_device_program(const plan::Program& program, const collectives::Operation& operation, int rank,
                                  int blocks);

// Packets: words of 4 bytes, each with the number of the call beside it (NCCL's LL protocol, arXiv:2507.04786, section
// III), so that who reads them needs no other sign. What a rank would read in another's scratch is pushed to it as
// packets by whoever makes it, each to a place of its own; then nobody waits for other ranks in any other way, and
// scratch may be overwritten at any time.
inline constexpr std::int64_t kUnitBytes = 8;  // carried by two packets: what a thread takes at once

struct PacketProgram {
  DeviceProgram program;
  std::int64_t packet_bytes = 0;  // that a rank must have for each of two calls in turn, the most of all ranks
};

// Nothing if the program reads or writes other memory of other ranks than scratch that one instruction has filled.
std::optional<PacketProgram> make_packet_program(const plan::Program& program, const collectives::Operation& operation,
                                                 int rank, int blocks);

// Where the arrays lie in the image, in bytes, each aligned for any access.
struct ImageLayout {
  std::uint32_t lanes;
  std::uint32_t instructions;
  std::uint32_t waits;
  std::uint32_t sources;
  std::uint32_t destinations;
  std::uint32_t listeners;
  std::uint32_t exit_waits;
  std::uint32_t num_exit_waits;
  std::uint32_t size_bytes;  // of the image, a multiple of 16
};

// A program's arrays in one piece, as the device has them.
struct ProgramImage {
  std::vector<std::byte> bytes;
  ImageLayout at;
};
ProgramImage image_of(const DeviceProgram& program);

}  // namespace lockstep::executors::cuda
