#include "collectives/transports/transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::transports {
namespace {

using DoneFlag = std::shared_ptr<std::atomic<bool>>;

struct Outgoing {
  std::span<const std::byte> bytes;  // the sender's memory, or `copy`
  std::vector<std::byte> copy;
  DoneFlag done;
  bool copied;
};

struct Incoming {
  std::span<std::byte> bytes;
  DoneFlag done;
};

// One (from, to, channel): sends and receives that are not matched yet. At most one of the queues holds entries.
struct UnmatchedMessages {
  std::deque<Outgoing> sends;
  std::deque<Incoming> receives;
};

void meet(UnmatchedMessages& channel) {
  while (!channel.sends.empty() && !channel.receives.empty()) {
    const Outgoing& out = channel.sends.front();
    const Incoming& in = channel.receives.front();
    LOCKSTEP_CHECK(out.bytes.size() == in.bytes.size(), "a send and its receive differ in size");
    if (!out.bytes.empty()) std::memcpy(in.bytes.data(), out.bytes.data(), out.bytes.size());
    // Release: a thread that sees the flag also sees the bytes (and, for the sender, that they were read).
    out.done->store(true, std::memory_order_release);
    in.done->store(true, std::memory_order_release);
    channel.sends.pop_front();
    channel.receives.pop_front();
  }
}

// Copies the oldest messages, up to the mailbox's capacity.
void fill_mailbox(UnmatchedMessages& channel, int capacity) {
  const std::size_t held = std::min(channel.sends.size(), static_cast<std::size_t>(capacity));
  for (std::size_t i = 0; i < held; ++i) {
    Outgoing& out = channel.sends[i];
    if (out.copied) continue;
    out.copy.assign(out.bytes.begin(), out.bytes.end());
    out.bytes = out.copy;
    out.copied = true;
    out.done->store(true, std::memory_order_release);
  }
}

// Messages that were sent to one rank.
struct Inbox {
  std::mutex mutex;
  core::Gate sent;                                            // counts messages; updated under the mutex
  std::uint64_t seen = 0;                                     // value of `sent` when the rank last looked
  std::map<std::pair<int, int>, UnmatchedMessages> channels;  // by (from, channel)
};

}  // namespace

struct LoopbackWorld::State {
  State(int num_ranks, int capacity_of_channel, std::chrono::nanoseconds timeout_of_world,
        const core::AbortFlag* flag_of_caller)
      : capacity(capacity_of_channel),
        timeout(timeout_of_world),
        flag(flag_of_caller),
        inboxes(static_cast<std::size_t>(num_ranks)),
        present(static_cast<std::size_t>(num_ranks)) {}

  int capacity;
  std::chrono::nanoseconds timeout;
  const core::AbortFlag* flag;
  std::vector<Inbox> inboxes;
  std::atomic<bool> aborted{false};
  std::mutex mutex;  // guards the members below
  std::string reason;
  int arrived = 0;
  std::vector<bool> present;  // [rank]
  std::vector<std::byte> gathered;
  std::atomic<std::int64_t> meetings{0};  // count of barrier() and all_gather() by all ranks

  int num_ranks() const { return static_cast<int>(inboxes.size()); }

  void throw_if_aborted() {
    if (flag != nullptr && flag->raised()) flag->throw_raised();
    if (!aborted.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(mutex);
    throw core::Error(core::Failure::rank_lost, reason);
  }

  // Puts `mine` into this rank's place of `gathered` and waits until all ranks have done so.
  void wait_for_all(int rank, std::span<const std::byte> mine) {
    const std::int64_t meeting = meetings.load(std::memory_order_acquire);
    {
      const std::scoped_lock lock(mutex);
      gathered.resize(mine.size() * inboxes.size());
      std::copy(mine.begin(), mine.end(), gathered.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
      present[static_cast<std::size_t>(rank)] = true;
      if (++arrived == num_ranks()) {
        arrived = 0;
        present.assign(present.size(), false);
        meetings.store(meeting + 1, std::memory_order_release);
      }
    }
    const core::Deadline deadline = core::Deadline::after(timeout);
    while (meetings.load(std::memory_order_acquire) == meeting) {
      throw_if_aborted();
      if (deadline.passed()) time_out(rank);
      std::this_thread::yield();
    }
  }

  [[noreturn]] void time_out(int rank) {
    std::string missing;
    const std::scoped_lock lock(mutex);
    for (std::size_t r = 0; r < present.size(); ++r) {
      if (!present[r]) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(r);
    }
    throw core::Error(core::Failure::timeout, "rank " + std::to_string(rank) +
                                                  " waited at a barrier that these ranks did not reach: " + missing);
  }
};

namespace {

class Loopback final : public Transport {
 public:
  Loopback(std::shared_ptr<LoopbackWorld::State> state, int rank) : state_(std::move(state)), rank_(rank) {}

  std::string_view name() const override { return "loopback"; }
  int rank() const override { return rank_; }
  int num_ranks() const override { return state_->num_ranks(); }

  Request send(int peer, int channel_number, std::span<const std::byte> bytes) override {
    DoneFlag flag = std::make_shared<std::atomic<bool>>(false);
    Inbox& inbox = state_->inboxes.at(static_cast<std::size_t>(peer));
    const std::scoped_lock lock(inbox.mutex);
    UnmatchedMessages& channel = inbox.channels[{rank_, channel_number}];
    channel.sends.push_back({bytes, {}, flag, false});
    meet(channel);
    fill_mailbox(channel, state_->capacity);
    inbox.sent.open(inbox.sent.value.load(std::memory_order_relaxed) + 1);
    return remember(std::move(flag));
  }

  Request recv(int peer, int channel_number, std::span<std::byte> bytes) override {
    DoneFlag flag = std::make_shared<std::atomic<bool>>(false);
    Inbox& inbox = state_->inboxes.at(static_cast<std::size_t>(rank_));
    const std::scoped_lock lock(inbox.mutex);
    UnmatchedMessages& channel = inbox.channels[{peer, channel_number}];
    channel.receives.push_back({bytes, flag});
    meet(channel);
    fill_mailbox(channel, state_->capacity);
    return remember(std::move(flag));
  }

  bool done(Request request) override {
    const auto found = requests_.find(request.id);
    LOCKSTEP_CHECK(found != requests_.end(), "loopback: this request is spent");
    if (!found->second->load(std::memory_order_acquire)) return false;
    requests_.erase(found);
    return true;
  }

  void idle() override {
    state_->throw_if_aborted();
    std::this_thread::yield();
  }

  void abandon() override {
    for (int to = 0; to < num_ranks(); ++to) {
      Inbox& inbox = state_->inboxes[static_cast<std::size_t>(to)];
      const std::scoped_lock lock(inbox.mutex);
      for (auto& [key, channel] : inbox.channels) {
        if (to == rank_) channel.receives.clear();
        if (key.first == rank_) std::erase_if(channel.sends, [](const Outgoing& out) { return !out.copied; });
      }
    }
  }

  void barrier() override { state_->wait_for_all(rank_, {}); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    LOCKSTEP_CHECK(all.size() == mine.size() * state_->inboxes.size(), "all_gather: sizes do not fit");
    state_->wait_for_all(rank_, mine);
    {
      const std::scoped_lock lock(state_->mutex);
      std::copy(state_->gathered.begin(), state_->gathered.end(), all.begin());
    }
    state_->wait_for_all(rank_, mine);  // no rank overwrites data that another has yet to read
  }

 private:
  Request remember(DoneFlag flag) {
    requests_.emplace(next_id_, std::move(flag));
    return {next_id_++};
  }

  std::shared_ptr<LoopbackWorld::State> state_;
  int rank_;
  std::map<std::int64_t, DoneFlag> requests_;
  std::int64_t next_id_ = 0;
};

}  // namespace

LoopbackWorld::LoopbackWorld(int num_ranks, int capacity, std::chrono::nanoseconds timeout, const core::AbortFlag* flag)
    : state_(std::make_shared<State>(num_ranks, capacity, timeout, flag)) {}
LoopbackWorld::~LoopbackWorld() = default;

std::unique_ptr<Transport> LoopbackWorld::endpoint(int rank) {
  return std::make_unique<Loopback>(state_, rank);
}

void LoopbackWorld::nap(int rank, std::chrono::nanoseconds longest) {
  Inbox& inbox = state_->inboxes.at(static_cast<std::size_t>(rank));
  if (!inbox.sent.reached(inbox.seen + 1)) inbox.sent.sleep(inbox.seen + 1, longest);
  inbox.seen = inbox.sent.value.load(std::memory_order_acquire);
}

void LoopbackWorld::abort(const std::string& reason) {
  {
    const std::scoped_lock lock(state_->mutex);
    if (state_->reason.empty()) state_->reason = reason;
  }
  state_->aborted.store(true, std::memory_order_release);
}

}  // namespace lockstep::transports
