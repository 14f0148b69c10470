#include "trainer/worker/channels.h"

namespace lockstep::trainer {

using schedules::GroupKind;

void ChannelMap::add(schedules::Lane lane, const schedules::Group& group) {
  if (index_.try_emplace({lane, group.ranks}, channels_.size()).second) channels_.push_back(group.ranks);
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
  }
}

std::vector<int> ChannelMap::queues() const {
  std::vector<int> queues(channels_.size());
  for (const auto& [place, channel] : index_) queues[channel] = static_cast<int>(place.first);
  return queues;
}

}  // namespace lockstep::trainer
