#include "trainer/worker/task_order.h"

#include <algorithm>

namespace lockstep::trainer {
namespace {

using schedules::Lane;
using schedules::Op;
using schedules::Task;

std::size_t index_of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

std::vector<core::Stream*> streams_of(const schedules::RankStep& rank, const LaneQueues* lanes) {
  std::vector<core::Stream*> streams;
  if (lanes == nullptr) return streams;
  for (const Task& task : rank.tasks) streams.push_back(&lanes->stream(task.lane));
  return streams;
}

std::vector<core::Stream*> others_of(const schedules::RankStep& rank, const LaneQueues* lanes) {
  std::vector<core::Stream*> others = streams_of(rank, lanes);
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  if (lanes != nullptr) std::erase(others, &lanes->stream(Lane::compute));
  return others;
}

bool is_bounded(const Task& task) {
  return task.op == Op::unshard || task.op == Op::reduce_grad;
}

}  // namespace

TaskOrder::TaskOrder(const schedules::RankStep& rank, const LaneQueues* lanes, parallel::Memory& memory)
    : rank_(rank),
      lanes_(lanes),
      memory_(memory),
      others_(others_of(rank, lanes)),
      times_(memory.device(), lanes == nullptr ? nullptr : &lanes->stream(Lane::compute), streams_of(rank, lanes)),
      place_(rank.tasks.size()) {}

void TaskOrder::begin_step(bool captured) {
  state_ = {};
  captured_ = captured;
  times_.begin_step(captured);
  if (!captured) return;
  for (core::Stream* const other : others_) other->wait(times_.begin_of_step());
}

// A stream that several lanes share has finished all their tasks at the end of the last one.
void TaskOrder::end_step() {
  if (lanes_ == nullptr) return;
  for (const LaneState& lane : state_) {
    if (lane.queued > 0) wait_for(Lane::compute, lane.last);
  }
}

bool TaskOrder::has_room(std::uint32_t task) const {
  if (lanes_ == nullptr || captured_ || !is_bounded(rank_.tasks[task])) return true;
  const std::vector<std::uint32_t>& before = state_[index_of(rank_.tasks[task].lane)].bounded;
  return before.size() < kMostQueued || times_.end_of(before[before.size() - kMostQueued]).done();
}

void TaskOrder::enter(std::uint32_t task) {
  if (lanes_ == nullptr) return;
  const Task& entered = rank_.tasks[task];
  resume(task);
  for (const std::uint32_t earlier : rank_.after_of(entered)) wait_for(entered.lane, earlier);
  times_.begin(task);
}

// A stream that has waited for a task has also waited for all earlier tasks of that task's lane.
void TaskOrder::wait_for(Lane lane, std::uint32_t earlier) {
  const Lane other = rank_.tasks[earlier].lane;
  if (&lanes_->stream(other) == &lanes_->stream(lane)) return;
  std::uint32_t& waited_for = state_[index_of(lane)].waited_for[index_of(other)];
  if (waited_for >= place_[earlier]) return;
  lanes_->stream(lane).wait(times_.end_of(earlier));
  waited_for = place_[earlier];
}

void TaskOrder::leave(std::uint32_t task) {
  if (lanes_ == nullptr) return;
  times_.end(task);
  LaneState& lane = state_[index_of(rank_.tasks[task].lane)];
  place_[task] = ++lane.queued;
  lane.last = task;
  if (is_bounded(rank_.tasks[task])) lane.bounded.push_back(task);
  pause();
}

void TaskOrder::pause() {
  if (lanes_ != nullptr) memory_.work_on(&lanes_->stream(Lane::compute));
}

void TaskOrder::resume(std::uint32_t task) {
  if (lanes_ != nullptr) memory_.work_on(&stream_of(rank_.tasks[task]));
}

}  // namespace lockstep::trainer
