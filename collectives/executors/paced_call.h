// One rank's part of calls over emulated links: data moves as fast as this machine can, and the rank leaves when it
// would have left on the specified links.
//
// Each rank notes when it entered and the time that its instructions cost its core. The last rank to finish plays the
// program (program_time.h) and computes when each rank leaves; all wait for that time. So time that the machine spends
// on copies, waking up and sharing few cores is hidden behind the links' time, as far as it is shorter, and never
// accumulates: a rank that wakes late and starts the next call at once is counted as having entered on time.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/executors/program_time.h"
#include "collectives/transports/local_world.h"

namespace lockstep::executors {

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
