// A Transport among some ranks of another one: members are numbered anew, and channels are some of that other's.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "collectives/transports/transport.h"

namespace lockstep::transports {

// Used by the thread of `all`, which it refers to.
class GroupTransport final : public Transport {
 public:
  // `members`: ranks of `all`, its own among them. Channels are those of `all` from `first_channel` on; the first is
  // for barrier() and all_gather(). `timeout`: of these two.
  GroupTransport(Transport& all, std::vector<std::int32_t> members, int first_channel,
                 std::chrono::nanoseconds timeout);

  std::string_view name() const override { return all_.name(); }
  int rank() const override { return index_; }
  int num_ranks() const override { return static_cast<int>(members_.size()); }
  int number_of(int rank) const override { return all_.number_of(member(rank)); }
  void barrier() override { all_gather({}, {}); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  Request send(int peer, int channel, std::span<const std::byte> bytes) override {
    return all_.send(member(peer), first_channel_ + 1 + channel, bytes);
  }
  Request recv(int peer, int channel, std::span<std::byte> bytes) override {
    return all_.recv(member(peer), first_channel_ + 1 + channel, bytes);
  }
  bool done(Request request) override { return all_.done(request); }
  void idle() override { all_.idle(); }
  void abandon() override { all_.abandon(); }

 private:
  int member(int index) const { return members_[static_cast<std::size_t>(index)]; }

  Transport& all_;
  const std::vector<std::int32_t> members_;
  const int first_channel_;
  const std::chrono::nanoseconds timeout_;
  int index_ = 0;
};

}  // namespace lockstep::transports
