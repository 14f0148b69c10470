// The order of tasks that are queued: what is after a task of another lane waits for the event at its end, in its own
// lane's stream. The host waits for nothing here.
//
// Memory: a tensor is made, and given back, in the stream of the task that does it (parallel::Memory::work_on), which
// by these waits comes behind all that used the tensor before.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/device.h"
#include "parallel/memory/memory.h"
#include "schedules/step/step.h"
#include "trainer/worker/lane_queues.h"
#include "trainer/worker/queue_times.h"

namespace lockstep::trainer {

class TaskOrder {
 public:
  // Without lanes nothing is queued, and all of this does nothing. What is passed outlives this.
  TaskOrder(const schedules::RankStep& rank, const LaneQueues* lanes, parallel::Memory& memory);

  // The time from which tasks are timed is now. `captured`: what is queued is recorded by the stream of kernels, which
  // takes in the others here.
  void begin_step(bool captured = false);
  void end_step();  // the stream of kernels waits for all others: what is given back from now on, nobody uses
  // Whether a task's lane has room. Collectives over parameters and gradients hold memory that is needed again: two of
  // a lane are queued at most, so that the host, which runs ahead, does not take that of all buckets at once. In a
  // capture nothing ends: a graph of them has memory for all.
  bool has_room(std::uint32_t task) const;
  // All that is queued and given back from now on belongs to the task.
  void enter(std::uint32_t task);
  void leave(std::uint32_t task);  // that was all of it
  // For a message, between the two: that is all for now; there is more.
  void pause();
  void resume(std::uint32_t task);

  // After all is done: when the task ran, if it was queued in this step.
  bool timed(std::uint32_t task) const { return times_.timed(task); }
  schedules::TaskSpan span_of(std::uint32_t task) const { return times_.span_of(task); }

 private:
  static constexpr std::size_t kMostQueued = 2;
  struct LaneState {
    std::array<std::uint32_t, schedules::kNumLanes> waited_for = {};  // of each other lane: so many tasks
    std::uint32_t queued = 0;                                         // tasks, in this step
    std::uint32_t last = 0;                                           // of them
    std::vector<std::uint32_t> bounded = {};                          // those that has_room() counts
  };
  void wait_for(schedules::Lane lane, std::uint32_t earlier);
  core::Stream& stream_of(const schedules::Task& task) const { return lanes_->stream(task.lane); }

  const schedules::RankStep& rank_;
  const LaneQueues* const lanes_;
  parallel::Memory& memory_;
  const std::vector<core::Stream*> others_;  // of this step's tasks, but that of kernels
  QueueTimes times_;
  std::array<LaneState, schedules::kNumLanes> state_;
  bool captured_ = false;
  std::vector<std::uint32_t> place_;  // of each task in its lane, from 1; of this step
};

}  // namespace lockstep::trainer
