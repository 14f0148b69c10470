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
#include <string>
#include <vector>

#include "collectives/plan/program.h"
#include "collectives/transports/local_world.h"
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
    std::uint32_t first_consequence = 0;  // ends where the next node's begin
    std::int32_t num_causes = 0;          // waits, messages, and the instruction before
    std::int64_t message_bytes = 0;       // size of each of its messages
  };
  std::vector<Node> nodes_;  // plus one at the end
  std::vector<Consequence> consequences_;
};

// One rank's part of calls over emulated links: data moves as fast as this machine can, and the rank leaves when it
// would have left on the specified links.
//
// Each rank notes when it entered and the time that its instructions cost its core. The last rank to finish plays the
// program and computes when each rank leaves; all wait for that time. So time that the machine spends
// on copies, waking up and sharing few cores is hidden by the links' time, as far as it is shorter, and never
// accumulates: a rank that wakes late and starts the next call at once is counted as having entered on time.

class PacedCall {
 public:
  // The arguments outlive this object.
  PacedCall(transports::LocalWorld& world, const plan::Program& program, const ProgramTime& time,
            const std::string& label);

  // Waits for all ranks to enter: a rank that began to work at once would take the core from ranks that have yet to
  // enter, and so delay them.
  void enter(std::uint64_t call);
  // Does the work of an instruction, and notes its cost: this thread's time, as ranks may share cores.
  template <class Work>
  void run(int lane, std::size_t index, const Work& work) {
    std::int64_t& cost_ns = costs_ns_[time_.cost_index(lane, index)];
    cost_ns = 0;
    const plan::LaneProgram& of_lane = program_.lanes[static_cast<std::size_t>(lane)];
    const double part = own_part(of_lane, of_lane.instructions[index], world_.rank());
    if (part == 0) return work();
    const std::int64_t begin_ns = transports::thread_time_ns();
    work();
    cost_ns = static_cast<std::int64_t>(part * static_cast<double>(transports::thread_time_ns() - begin_ns));
  }
  // Call it when all instructions are done. Returns at the computed time.
  void leave();

 private:
  std::int64_t entry_ns() const;
  void play();
  int late_peer() const;
  void wait_for_stated_time();

  transports::LocalWorld& world_;
  transports::LocalGroup& group_;
  const plan::RankProgram& program_;
  const ProgramTime& time_;
  const std::string& label_;
  transports::PacedRank& mine_;
  std::int64_t* costs_ns_;
  std::uint64_t call_ = 0;
};

}  // namespace lockstep::executors
