// The order of queued tasks: a task that follows one of another lane makes its own lane's stream wait for the event at
// that task's end. The host does not wait here.
//
// Memory: a tensor is allocated and freed in the stream of the task that does it (parallel::Memory::work_on). Through
// these waits that comes after every earlier use of the memory.
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
  // Without lanes nothing is queued and these functions do nothing. The arguments must outlive this.
  TaskOrder(const schedules::RankStep& rank, const LaneQueues* lanes, parallel::Memory& memory);

  // Task times are relative to now. `captured`: the stream of kernels records queued work and joins the other streams
  // here.
  void begin_step(bool captured = false);
  void end_step();  // the stream of kernels waits for all others: memory freed from now on is unused
  // True if a task's lane has room. Collectives over parameters and gradients hold memory that is needed again: at most
  // two per lane are queued, so that the host, which runs ahead, does not take memory for all buckets at once. In a
  // capture nothing completes: a graph of them has memory for all.
  bool has_room(std::uint32_t task) const;
  // All work queued and memory freed from now on belongs to the task.
  void enter(std::uint32_t task);
  void leave(std::uint32_t task);  // ends what enter() began
  // For a message, between enter() and leave(): its work pauses and will continue.
  void pause();
  void resume(std::uint32_t task);

  // After all work is done: the task's times, if it was queued in this step.
  bool timed(std::uint32_t task) const { return times_.timed(task); }
  schedules::TaskSpan span_of(std::uint32_t task) const { return times_.span_of(task); }

 private:
  static constexpr std::size_t kMostQueued = 2;
  struct LaneState {
    std::array<std::uint32_t, schedules::kNumLanes> waited_for = {};  // number of tasks, for each other lane
    std::uint32_t queued = 0;                                         // tasks in this step
    std::uint32_t last = 0;                                           // the last of them
    std::vector<std::uint32_t> bounded = {};                          // tasks that has_room() counts
  };
  void wait_for(schedules::Lane lane, std::uint32_t earlier);
  core::Stream& stream_of(const schedules::Task& task) const { return lanes_->stream(task.lane); }

  const schedules::RankStep& rank_;
  const LaneQueues* const lanes_;
  parallel::Memory& memory_;
  const std::vector<core::Stream*> others_;  // streams of this step's tasks other than that of kernels
  QueueTimes times_;
  std::array<LaneState, schedules::kNumLanes> state_;
  bool captured_ = false;
  std::vector<std::uint32_t> place_;  // position of each task in its lane, from 1, in this step
};

}  // namespace lockstep::trainer
