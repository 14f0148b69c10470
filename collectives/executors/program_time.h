// A Program in virtual time, on links of specified speed: computes when each rank leaves the call.
//
// This is the only schedule of emulated links. The direct executor moves the data as fast as this machine can, plays
// the program with the costs that it has measured, and lets each rank sleep until its computed time; --explain plays it
// with the costs of a model. So the emulation and the prediction are the same, whenever a thread came to run.
//
//   a message      is every source in another rank's memory; it is ready when produced, and sent then, in the order of
//                  virtual time (transports::LinkTable)
//   an instruction begins when its lane's last one is done, all its messages have arrived and all its waits are over
//   its cost       is spent on the rank's core, one instruction at a time: its own sums and copies. Writing a message
//                  to memory, here a copy by some core, is the network's work and costs nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/plan/program.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::executors {

// Fraction of an instruction's bytes, read and written, that are the rank's own work: all except those that it stores
// in other ranks' memory; 0 for a message that only arrives.
double own_part(const plan::LaneProgram& lane, const plan::Instruction& instruction, int rank);

class ProgramTime {
 public:
  // `program` outlives this object.
  ProgramTime(const plan::Program& program, std::int64_t element_bytes);

  // Index of instruction `index` of a lane in a rank's costs, and the number of costs.
  std::size_t cost_index(int lane, std::size_t index) const { return static_cast<std::size_t>(lane) * stride_ + index; }
  std::size_t num_costs() const { return stride_ * static_cast<std::size_t>(program_.num_lanes); }

  struct RankClock {
    std::int64_t entered_ns;
    const std::int64_t* costs_ns;  // [cost_index]
  };
  // Time (ns) at which each rank leaves. `port`: a rank's port in `links`.
  std::vector<std::int64_t> play(std::span<const RankClock> ranks, const std::function<int(int rank)>& port,
                                 transports::LinkTable& links) const;

 private:
  class Playing;
  // Consequence of a lane having done some instructions, or of a rank having entered: one cause less for another
  // instruction, or a message for it is sent.
  struct Consequence {
    std::uint32_t of_node;
    std::uint32_t index;        // position of the instruction in its lane
    std::uint32_t source;       // source of the instruction, if this is its message
    std::uint32_t instruction;  // node
    bool is_message;
  };
  std::uint32_t node(int rank, int lane, std::uint32_t instructions) const;
  void add_consequences(int rank, int lane);

  const plan::Program& program_;
  std::size_t stride_ = 0;  // instructions of the longest lane
  // Nodes are the entry and every instruction of each lane: first_[lane of rank] + instructions done.
  std::vector<std::uint32_t> first_;
  struct Node {
    int rank = 0;
    int lane = 0;
    std::uint32_t first_consequence = 0;  // ends at that of the next node
    std::int32_t num_causes = 0;          // waits, messages, and the instruction before
    std::int64_t message_bytes = 0;       // size of each of its messages
  };
  std::vector<Node> nodes_;  // plus one at the end
  std::vector<Consequence> consequences_;
};

}  // namespace lockstep::executors
