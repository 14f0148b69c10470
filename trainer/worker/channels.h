// The channels that the collectives of a trainer's steps need: one per list of ranks and lane, so that lanes can run
// concurrently.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "schedules/step/step.h"

namespace lockstep::trainer {

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

}  // namespace lockstep::trainer
