#include "trainer/worker/channels.h"

#include <algorithm>

namespace lockstep::trainer {

using schedules::GroupKind;

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

}  // namespace lockstep::trainer
