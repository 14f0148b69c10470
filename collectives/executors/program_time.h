// A Program in virtual time, on links of stated speed: when each rank would leave the call.
//
// This is the one schedule of emulated links. The direct executor moves the data as fast as this machine does it, plays
// the program with the costs that it has measured, and leaves each rank asleep until its stated time; --explain plays
// it with the costs of a model. So what is emulated is what is predicted, whenever a thread came to run.
//
//   a message      every source that lies in another rank's memory; ready when it has been made, and booked then, in
//                  the order of virtual time (transports::LinkTable)
//   an instruction begins when its lane's last one is done, all messages have arrived and all waits are over
//   its cost       is taken on the rank's core, one instruction at a time: sums and copies of its own. That messages
//                  land in memory, here a copy by some core, is the network's work and has no cost.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/plan/program.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::executors {

// The part of an instruction's bytes, read and written, that is the rank's own work: all but those that it stores in
// other ranks' memory; 0 for a message that only lands.
double own_part(const plan::LaneProgram& lane, const plan::Instruction& instruction, int rank);

class ProgramTime {
 public:
  // `program` outlives this.
  ProgramTime(const plan::Program& program, std::int64_t element_bytes);

  // Where instruction `index` of a lane stands in a rank's costs, and how many there are.
  std::size_t cost_index(int lane, std::size_t index) const { return static_cast<std::size_t>(lane) * stride_ + index; }
  std::size_t num_costs() const { return stride_ * static_cast<std::size_t>(program_.num_lanes); }

  struct RankClock {
    std::int64_t entered_ns;
    const std::int64_t* costs_ns;  // [cost_index]
  };
  // `port`: of a rank, in `links`. When each rank leaves.
  std::vector<std::int64_t> play(std::span<const RankClock> ranks, const std::function<int(int rank)>& port,
                                 transports::LinkTable& links) const;

 private:
  class Playing;
  // The consequence of a lane having done so many instructions, or a rank has entered: another instruction is let go,
  // or a message for it sets out.
  struct Consequence {
    std::uint32_t of_node;
    std::uint32_t index;        // of the instruction in its lane
    std::uint32_t source;       // of the instruction, if this is its message
    std::uint32_t instruction;  // node
    bool is_message;
  };
  std::uint32_t node(int rank, int lane, std::uint32_t instructions) const;
  void add_consequences(int rank, int lane);

  const plan::Program& program_;
  std::size_t stride_ = 0;  // instructions of the longest lane
  // A node for every lane's entry and for every instruction of it, [first_[lane of rank] + instructions done].
  std::vector<std::uint32_t> first_;
  struct Node {
    int rank = 0;
    int lane = 0;
    std::uint32_t first_consequence = 0;  // to that of the next node
    std::int32_t num_causes = 0;          // waits, messages, and the instruction before
    std::int64_t message_bytes = 0;       // of each of its messages
  };
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<Consequence> consequences_;
};

}  // namespace lockstep::executors
