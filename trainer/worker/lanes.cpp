#include "trainer/worker/lanes.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lockstep::trainer {

using schedules::GroupKind;
using schedules::Lane;

namespace {

std::string ranks_text(const backends::Channel& ranks) {
  constexpr std::size_t kMostNamed = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) text += " " + std::to_string(ranks[i]);
  return ranks.size() <= kMostNamed ? text : text + " ... " + std::to_string(ranks.back());
}

}  // namespace

void ChannelMap::add(schedules::Lane lane, const schedules::Group& group) {
  if (!index_.try_emplace({lane, group.ranks}, channels_.size()).second) return;
  channels_.push_back(group.ranks);
  names_.push_back(std::string(name_of(group.kind)) + " group of ranks" + ranks_text(group.ranks) + " (" +
                   std::string(name_of(lane)) + ")");
}

ChannelMap::ChannelMap(std::span<const schedules::Step* const> steps, std::span<const backends::Channel> peers) {
  for (const schedules::Step* const step : steps) {
    for (const schedules::RankStep& rank : step->of_rank) {
      for (const schedules::Task& task : rank.tasks) {
        if (task.comm == schedules::Comm::none) continue;
        add(task.lane, step->groups[static_cast<std::size_t>(task.peer)]);
      }
    }
    for (const schedules::Group& group : step->groups) {  // hops of a reduction that is a single task
      if (group.kind == GroupKind::near || group.kind == GroupKind::far) add(schedules::Lane::reduce, group);
    }
  }
  for (const backends::Channel& ranks : peers) {
    for (const std::int32_t rank : ranks) of_peers_.try_emplace(rank, channels_.size());
    channels_.push_back(ranks);
    names_.push_back("replicas that agree: ranks" + ranks_text(ranks));
  }
}

std::vector<int> ChannelMap::queues() const {
  std::vector<int> queues(channels_.size());
  for (const auto& [place, channel] : index_) queues[channel] = static_cast<int>(place.first);
  return queues;
}

LaneQueues::LaneQueues(backends::MeshRank& mesh, const ChannelMap& channels, bool has_messages,
                       const MakeContext& make_context) {
  streams_[index_of(Lane::compute)] = mesh.queues->compute;
  const std::vector<int> queues = channels.queues();
  for (std::size_t c = 0; c < queues.size(); ++c) {
    core::Stream* const stream = mesh.queues->of_channel[c];
    if (stream != nullptr) streams_[static_cast<std::size_t>(queues[c])] = stream;
  }
  for (const Lane lane : {Lane::send, Lane::receive}) {
    if (!has_messages) break;
    own_[index_of(lane)] = mesh.device.make_stream();
    streams_[index_of(lane)] = own_[index_of(lane)].get();
  }
  for (const Lane lane : {Lane::compute, Lane::reduce, Lane::replicas}) {
    if (streams_[index_of(lane)] != nullptr) contexts_[index_of(lane)] = make_context(stream(lane));
  }
}

QueueTimes::QueueTimes(core::Device& device, core::Stream* first, std::vector<core::Stream*> streams)
    : first_(first), streams_(std::move(streams)) {
  if (first_ == nullptr) return;
  start_ = device.make_event();
  reached_start_ = device.make_event();
  tasks_.resize(streams_.size());
  for (Task& task : tasks_) {
    task.begin = device.make_event();
    task.end = device.make_event();
    task.reached = device.make_event();
  }
}

void QueueTimes::begin_step(bool captured) {
  ++step_;
  captured_ = captured;
  if (first_ == nullptr) return;
  start_->record_time(*first_);
  reached_start_->record(*first_);
}

void QueueTimes::begin(std::uint32_t task) {
  if (first_ != nullptr) tasks_[task].begin->record_time(*streams_[task]);
}

void QueueTimes::end(std::uint32_t task) {
  if (first_ == nullptr) return;
  tasks_[task].end->record_time(*streams_[task]);
  if (captured_) tasks_[task].reached->record(*streams_[task]);
  tasks_[task].step = step_;
}

schedules::TaskSpan QueueTimes::span_of(std::uint32_t task) const {
  const auto ps_of = [this](const core::Event& event) { return std::llround(event.us_since(*start_) * 1e6); };
  return {ps_of(*tasks_[task].begin), ps_of(*tasks_[task].end)};
}

namespace {

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
