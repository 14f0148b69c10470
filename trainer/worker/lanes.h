// Lanes of a trainer's rank: channels, queues, their times, and the order of tasks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "kernels/base/context.h"
#include "parallel/memory/memory.h"
#include "schedules/step/step.h"

namespace lockstep::trainer {

// The channels that the collectives of a trainer's steps need: one per list of ranks and lane, so that lanes can run
// concurrently.

class ChannelMap {
 public:
  // Builds the channels for all collectives of these steps and for `peers`, in the same order on every rank.
  explicit ChannelMap(std::span<const schedules::Step* const> steps, std::span<const backends::Channel> peers = {});

  std::span<const backends::Channel> channels() const { return channels_; }
  std::vector<int> queues() const;  // the lane of each channel
  // [channel] "data group of ranks 0 2 (reduce)", for errors: what the ranks are to each other, and the lane.
  const std::vector<std::string>& names() const { return names_; }
  std::size_t of(schedules::Lane lane, const schedules::Group& group) const { return index_.at({lane, group.ranks}); }
  // Index of the channel of peers that contains `rank`.
  std::size_t of_peers(std::int32_t rank) const { return of_peers_.at(rank); }

 private:
  void add(schedules::Lane lane, const schedules::Group& group);

  std::vector<backends::Channel> channels_;
  std::vector<std::string> names_;
  std::map<std::pair<schedules::Lane, backends::Channel>, std::size_t> index_;
  std::map<std::int32_t, std::size_t> of_peers_;  // by rank
};

// A rank's lanes on a device with queued work: each lane has a stream, and a context for kernels in it.

class LaneQueues {
 public:
  using MakeContext = std::function<std::shared_ptr<kernels::CudaContext>(core::Stream&)>;
  // For a mesh with queues. Lanes of collectives use the streams of their channels, to which ChannelMap::queues() has
  // assigned a lane each. Messages, if there are any, have two streams of their own so that copies overlap with
  // kernels. Only the streams in use are created: a GPU has few hardware connections (cuda_backend.cpp). The arguments
  // must outlive this.
  LaneQueues(backends::MeshRank& mesh, const ChannelMap& channels, bool has_messages, const MakeContext& make_context);

  // The stream of a lane with tasks.
  core::Stream& stream(schedules::Lane lane) const { return *streams_[index_of(lane)]; }
  // Context of a lane with kernels: compute, and the lanes that reduce.
  kernels::Context where(schedules::Lane lane) const { return kernels::Context(*contexts_[index_of(lane)]); }

 private:
  static std::size_t index_of(schedules::Lane lane) { return static_cast<std::size_t>(lane); }
  std::array<std::unique_ptr<core::Stream>, schedules::kNumLanes> own_;
  std::array<core::Stream*, schedules::kNumLanes> streams_ = {};
  std::array<std::shared_ptr<kernels::CudaContext>, schedules::kNumLanes> contexts_;
};

// Run times of tasks whose calls return once they are queued: taken by events before and after each task in its stream.
// For captured tasks, each launch of the graph records them.

class QueueTimes {
 public:
  // `streams` has one stream per task; empty: nothing is queued or recorded. Steps begin in `first`. The arguments must
  // outlive this.
  QueueTimes(core::Device& device, core::Stream* first, std::vector<core::Stream*> streams);

  // Called while nothing is queued. Times are relative to now, or to the graph's launch if the step is captured.
  void begin_step(bool captured = false);
  // Events that streams can wait for: the start of the step, and the end of a task queued in this step.
  core::Event& begin_of_step() const { return *reached_start_; }
  core::Event& end_of(std::uint32_t task) const { return captured_ ? *tasks_[task].reached : *tasks_[task].end; }
  void begin(std::uint32_t task);
  void end(std::uint32_t task);

  // After the queue is done: whether the task was timed in this step, and its times.
  bool timed(std::uint32_t task) const { return !tasks_.empty() && tasks_[task].step == step_; }
  schedules::TaskSpan span_of(std::uint32_t task) const;

 private:
  struct Task {
    std::unique_ptr<core::Event> begin;
    std::unique_ptr<core::Event> end;
    std::unique_ptr<core::Event> reached;  // end of the task for captured work that waits for it; it has no time then
    std::int64_t step = 0;
  };
  core::Stream* const first_;
  const std::vector<core::Stream*> streams_;
  std::unique_ptr<core::Event> start_;
  std::unique_ptr<core::Event> reached_start_;
  bool captured_ = false;
  std::vector<Task> tasks_;  // empty without streams
  std::int64_t step_ = 0;
};

// The order of queued tasks: a task that follows one of another lane makes its own lane's stream wait for the event at
// that task's end. The host does not wait here.
//
// Memory: a tensor is allocated and freed in the stream of the task that does it (parallel::Memory::work_on). Through
// these waits that comes after every earlier use of the memory.

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
  // capture nothing completes: a graph of tasks has memory for all.
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
    std::uint32_t last = 0;                                           // the last task
    std::vector<std::uint32_t> bounded = {};                          // tasks that has_room() counts
  };
  void wait_for(schedules::Lane lane, std::uint32_t earlier);
  core::Stream& stream_of(const schedules::Task& task) const { return lanes_->stream(task.lane); }

  const schedules::RankStep& rank_;
  const LaneQueues* const lanes_;
  parallel::Memory& memory_;
  const std::vector<core::Stream*> others_;  // streams of this step's tasks except the stream of kernels
  QueueTimes times_;
  std::array<LaneState, schedules::kNumLanes> state_;
  bool captured_ = false;
  std::vector<std::uint32_t> place_;  // position of each task in its lane, from 1, in this step
};

}  // namespace lockstep::trainer
