// For tests: processes that make NCCL's communicators for all groups of a training step, over a fake of NCCL's calls
// that records who joined what. A process here is whatever has a NotingNccl of its own: a thread, or one of mpirun's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/backends/backend_kinds.h"
#include "collectives/libraries/nccl_member.h"
#include "testing/collectives/fake_nccl.h"
#include "trainer/step/train_step.h"
#include "trainer/worker/lanes.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep {

// A communicator that a process has joined.
struct ChannelJoin {
  std::int32_t channel = -1;
  std::array<char, 128> identifier = {};
  std::int32_t rank = -1;
  std::int32_t num_ranks = 0;
};

// Ranks that have come to each communicator, of threads that stand for processes: as NCCL's, a call is done when all
// have come.
class Meetings {
 public:
  void come(const libraries::NcclIdentifier& id) {
    const std::lock_guard lock(mutex_);
    ++came_[id.bytes];
  }
  bool are_all_there(const libraries::NcclIdentifier& id, int num_ranks) {
    const std::lock_guard lock(mutex_);
    return came_[id.bytes] == num_ranks;
  }

 private:
  std::mutex mutex_;
  std::map<std::array<char, 128>, int> came_;
};

class NotingNccl final : public libraries::FakeNccl {
 public:
  // `process` is different for each. Without meetings a call is done at once.
  explicit NotingNccl(std::int64_t process, Meetings* meetings = nullptr) : process_(process), meetings_(meetings) {}

  int make_identifier(libraries::NcclIdentifier& made) const override {
    made.bytes = {};
    const std::array<std::int64_t, 2> number{process_, ++made_};
    std::memcpy(made.bytes.data(), number.data(), sizeof number);
    return libraries::kNcclSuccess;
  }
  int join(ncclComm** made, int num_ranks, const libraries::NcclIdentifier& identifier, int rank,
           const libraries::NcclConfig& config) const override {
    joined_.push_back({.identifier = identifier.bytes, .rank = rank, .num_ranks = num_ranks});
    if (meetings_ != nullptr) meetings_->come(identifier);
    FakeNccl::join(made, num_ranks, identifier, rank, config);
    return libraries::kNcclInProgress;
  }
  int state(ncclComm* /*communicator*/, int& state) const override {
    const ChannelJoin& last = joined_.back();
    const bool done = meetings_ == nullptr || meetings_->are_all_there({last.identifier}, last.num_ranks);
    state = done ? libraries::kNcclSuccess : libraries::kNcclInProgress;
    return libraries::kNcclSuccess;
  }

  // Joins the communicators of all channels that the rank is a member of, as a mesh does.
  std::vector<ChannelJoin> join_all(const backends::GroupWorlds& worlds, const std::vector<std::string>& names,
                                    int rank, std::chrono::nanoseconds timeout) {
    joined_.clear();
    std::vector<libraries::NcclMemberPtr> members;
    backends::for_each_membership(worlds, [&](std::size_t channel, transports::World& world) {
      libraries::NcclCaller caller{.rank = rank, .device = 0, .timeout = timeout, .group = names[channel]};
      libraries::NcclGpu gpu{
          .uuid = {}, .num_multiprocessors = 132, .sharing = {.version_code = 23000, .enabled = true}};
      gpu.uuid[0] = static_cast<std::uint8_t>(rank);
      members.push_back(libraries::join_world(*this, caller, world, gpu));
      joined_.back().channel = static_cast<std::int32_t>(channel);
    });
    return joined_;
  }

 private:
  const std::int64_t process_;
  Meetings* const meetings_;
  mutable std::int64_t made_ = 0;
  mutable std::vector<ChannelJoin> joined_;
};

// The channels of a step of this layout.
inline trainer::ChannelMap channels_of(const std::string& layout) {
  const auto model = workload::parse_model("layers=4,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no,experts=" +
                                           std::string(layout.find("ep=") == std::string::npos ? "0" : "4"));
  const trainer::TrainStep made = trainer::make_train_step(model, workload::parse_layout(layout));
  const std::array<const schedules::Step*, 2> steps{&made.step, &made.forward};
  return trainer::ChannelMap(steps);
}

// Says what is wrong with what the processes ([rank]) have joined; empty: each group is one communicator with the
// group's ranks in their order, and every process came to its groups in the order of their numbers.
inline std::string joining_errors(const std::vector<std::vector<ChannelJoin>>& joined,
                                  std::span<const backends::Channel> channels) {
  std::map<std::array<char, 128>, std::int32_t> channel_of;  // an identifier is of one channel
  std::vector<std::vector<std::int32_t>> members(channels.size());
  for (std::size_t rank = 0; rank < joined.size(); ++rank) {
    std::int32_t before = -1;
    for (const ChannelJoin& join : joined[rank]) {
      const std::string where = "rank " + std::to_string(rank) + ", channel " + std::to_string(join.channel);
      if (join.channel <= before) return where + " was joined behind channel " + std::to_string(before);
      before = join.channel;
      if (channel_of.try_emplace(join.identifier, join.channel).first->second != join.channel) {
        return where + " has another channel's identifier";
      }
      const backends::Channel& channel = channels[static_cast<std::size_t>(join.channel)];
      if (join.num_ranks != static_cast<int>(channel.size())) return where + " has another number of ranks";
      if (channel[static_cast<std::size_t>(join.rank)] != static_cast<std::int32_t>(rank))
        return where + ": another rank";
      members[static_cast<std::size_t>(join.channel)].push_back(static_cast<std::int32_t>(rank));
    }
  }
  if (channel_of.size() != channels.size()) return "channels are of several communicators, or of none";
  for (std::size_t c = 0; c < channels.size(); ++c) {
    if (members[c] != channels[c]) return "channel " + std::to_string(c) + " was not joined by all of its ranks";
  }
  return "";
}

// Layouts of eight ranks with every kind of group.
inline const std::vector<std::string>& layouts_of_eight() {
  static const std::vector<std::string> kLayouts{"dp=2,tp=2,pp=2,batch=4", "dp=8,zero=3,shard_ranks=4,batch=8",
                                                 "dp=4,ep=2,tp=2,batch=4", "dp=2,cp=2,tp=2,batch=4",
                                                 "dp=4,pp=2,zero=2,schedule=interleaved,chunks=2,batch=16"};
  return kLayouts;
}

}  // namespace lockstep
