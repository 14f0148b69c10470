// A Program: a Plan prepared for ranks that can access each other's memory.
//
// Sends and receives are gone. What is left are passes over memory (one or several sources, possibly of other ranks,
// combined into one destination) and waits. Each lane of each rank counts the instructions that it has done; a wait
// names a lane and the count that it must have reached. So the only kind of synchronization is a counter that has
// reached a value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// An address in a rank's memory. A source's data is valid once `lane` of `rank` has done `instructions`; 0: from the
// start.
struct RankAddress {
  int rank;
  Buffer buffer;
  std::int64_t offset_bytes;
  int lane = 0;
  std::uint32_t instructions = 0;
};

// Waits until lane `lane` of `rank` has done `instructions` of its instructions; 0: until the rank has entered the
// collective.
struct Wait {
  int rank;
  int lane;
  std::uint32_t instructions;
};

// Each destination = source (+) source (+) ..., `count` elements; with one source, a copy. Without a destination it is
// only a wait: the source's rank has stored its result here.
struct Instruction {
  std::uint32_t first_wait;
  std::uint32_t num_waits;
  std::uint32_t first_source;
  std::uint32_t num_sources;
  std::uint32_t first_destination;
  std::uint32_t num_destinations;
  std::int64_t count;  // elements
  bool completes;      // the result has the contribution of every rank: an average divides here
  bool awaited;        // another lane waits for this instruction: its counter must be updated at once
};

struct LaneProgram {
  bool entry_awaited = false;  // another rank waits for this rank's entry
  std::vector<Instruction> instructions;
  std::vector<Wait> waits;
  std::vector<RankAddress> sources;
  std::vector<RankAddress> destinations;

  std::span<const Wait> waits_of(const Instruction& i) const { return {waits.data() + i.first_wait, i.num_waits}; }
  std::span<const RankAddress> sources_of(const Instruction& i) const {
    return {sources.data() + i.first_source, i.num_sources};
  }
  std::span<const RankAddress> destinations_of(const Instruction& i) const {
    return {destinations.data() + i.first_destination, i.num_destinations};
  }
};

struct RankProgram {
  std::vector<LaneProgram> lanes;
  std::vector<Wait> exit_waits;  // until no rank reads or writes this rank's input and output any more
};

struct Program {
  int num_ranks = 0;
  int num_lanes = 0;
  std::int64_t scratch_bytes = 0;  // per rank
  std::vector<RankProgram> ranks;  // [rank]
};

// Runs only the waits. Returns nothing if every rank ends, else a text that names a waiting lane and its wait.
std::optional<std::string> find_deadlock(const Program& program);

// From a Plan to a Program: dataflow analysis, fusion, segments.
//
// A checked plan is run once symbolically, in any legal order, at the granularity of cells (a chunk's segment in one
// rank's memory). This gives for every read the instruction that wrote the cell last, and for every write the
// instructions that may still read it. The program gets only these waits: sends, channels and `after` edges are gone.
//   fusion    runs of steps of a lane that build up one destination become one pass over several sources
//   push      a sender stores data that it has just produced at the receiver: one pass, several destinations
//   segments  every pass is cut into pieces, so that a reader can follow its writer closely

struct LowerOptions {
  int segments = 1;  // pieces of every pass
  bool fuse = true;
  // The pass that produces a piece also stores it where its receivers would have copied it to.
  bool push = false;
};

// The plan must have passed the checker for operation.in_place. The program may deadlock although the plan, whose sends
// are buffered, does not: call find_deadlock().
Program lower(const Plan& plan, const collectives::Operation& operation, const LowerOptions& options);

// Returns a plan in which every slice that is sent is first copied to scratch, so that a rank may leave, or overwrite
// its buffers, before others have read them. Equal slices are copied once.
Plan stage_sends(const Plan& plan);

// Returns a plan that copies the whole input to scratch and never reads it again: for in-place runs of plans that write
// their output before they have read all of their input.
Plan stage_input(const Plan& plan);

}  // namespace lockstep::plan
