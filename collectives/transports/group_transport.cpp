#include "collectives/transports/group_transport.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::transports {

GroupTransport::GroupTransport(Transport& all, std::vector<std::int32_t> members, int first_channel,
                               std::chrono::nanoseconds timeout)
    : all_(all), members_(std::move(members)), first_channel_(first_channel), timeout_(timeout) {
  const auto found = std::find(members_.begin(), members_.end(), all.rank());
  LOCKSTEP_CHECK(found != members_.end(), "the rank is no member of the group");
  index_ = static_cast<int>(found - members_.begin());
}

// Everyone sends to everyone: a meeting outside of what is timed.
void GroupTransport::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  LOCKSTEP_CHECK(all.size() == mine.size() * members_.size(), "all_gather: sizes do not fit");
  struct Message {
    Request request;
    int peer;
  };
  std::vector<Message> messages;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const auto place = all.subspan(mine.size() * static_cast<std::size_t>(peer), mine.size());
    if (peer == index_) {
      std::copy(mine.begin(), mine.end(), place.begin());
      continue;
    }
    messages.push_back({all_.recv(member(peer), first_channel_, place), peer});
    messages.push_back({all_.send(member(peer), first_channel_, mine), peer});
  }
  const core::Deadline deadline = core::Deadline::after(timeout_);
  for (const Message& message : messages) {
    while (!all_.done(message.request)) {
      if (deadline.passed()) {
        throw core::Error(core::Failure::timeout, "rank " + std::to_string(number_of(index_)) + " waited for rank " +
                                                      std::to_string(number_of(message.peer)) +
                                                      " at a meeting of their group");
      }
      all_.idle();
    }
  }
}

}  // namespace lockstep::transports
