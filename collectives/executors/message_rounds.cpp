// The message executor's rules without memory and without time.
#include "collectives/executors/message_rounds.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::executors {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr int kDone = -1;  // in waits

struct RankState {
  struct Sends {
    std::size_t next = 0;
    int under_way = 0;
  };
  struct Recvs {
    std::size_t posted = 0;
    std::size_t landed = 0;
    std::size_t retired = 0;
  };
  std::vector<int> waits;    // [op]
  std::vector<char> taken;   // [op] messages that left the sender and have arrived
  std::vector<Sends> sends;  // [queue]
  std::vector<Recvs> recvs;  // [queue]
  std::size_t left = 0;      // operations that are not done
  MessageRounds rounds;
  MessageRound round;  // the one that is being written
};

struct Sent {
  int op;
  std::size_t queue;
};

// Sends and posted receives of a channel that have not met.
struct Channel {
  std::deque<Sent> sends;
  std::deque<int> recvs;
};

class DryRun {
 public:
  DryRun(const std::vector<MessageProgram>& programs, const MessageLimits& limits)
      : programs_(programs), limits_(limits), ranks_(programs.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const MessageOp& op : programs[r].ops) ranks_[r].waits.push_back(op.waits);
      ranks_[r].taken.resize(programs[r].ops.size(), 0);
      ranks_[r].sends.resize(programs[r].sends.size());
      ranks_[r].recvs.resize(programs[r].recvs.size());
      ranks_[r].left = programs[r].ops.size();
    }
  }

  bool ends() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (int op : programs_[r].first) complete(r, op);
    }
    while (next_round()) {
    }
    for (RankState& rank : ranks_) close_round(rank);
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.left == 0; });
  }

  std::vector<MessageRounds> take_rounds() {
    std::vector<MessageRounds> rounds;
    for (RankState& rank : ranks_) rounds.push_back(std::move(rank.rounds));
    return rounds;
  }

 private:
  const MessageOp& op_at(std::size_t rank, int op) const { return programs_[rank].ops[at(op)]; }

  // Whether any message went.
  bool next_round() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t q = 0; q < ranks_[r].recvs.size(); ++q) post(r, q);
      for (std::size_t q = 0; q < ranks_[r].sends.size(); ++q) start(r, q);
    }
    bool moved = false;
    for (auto& [between, channel] : channels_) moved |= meet(channel, std::get<0>(between), std::get<1>(between));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<int> sent = ranks_[r].round.sends;
      if (!sent.empty() || !ranks_[r].round.recvs.empty()) close_round(ranks_[r]);
      for (int op : sent) complete(r, op);
      for (std::size_t q = 0; q < ranks_[r].recvs.size(); ++q) land(r, q);
    }
    return moved;
  }

  static void close_round(RankState& rank) {
    const MessageRound& round = rank.round;
    if (round.work.empty() && round.sends.empty() && round.recvs.empty()) return;
    rank.rounds.push_back(std::exchange(rank.round, {}));
  }

  void post(std::size_t rank, std::size_t q) {
    const Queue& queue = programs_[rank].recvs[q];
    RankState::Recvs& recvs = ranks_[rank].recvs[q];
    while (recvs.retired < recvs.posted && ranks_[rank].waits[at(queue[recvs.retired])] == kDone) ++recvs.retired;
    while (recvs.posted < std::min(queue.size(), recvs.retired + at(limits_.recv_window))) {
      const int index = queue[recvs.posted];
      const MessageOp& op = op_at(rank, index);
      if (op.action == Action::recv && ranks_[rank].waits[at(index)] != 0) break;
      channels_[{at(op.peer), rank, op.lane}].recvs.push_back(index);
      ++recvs.posted;
    }
  }

  void start(std::size_t rank, std::size_t q) {
    const Queue& queue = programs_[rank].sends[q];
    RankState::Sends& sends = ranks_[rank].sends[q];
    while (sends.next < queue.size() && sends.under_way < limits_.send_window &&
           ranks_[rank].waits[at(queue[sends.next])] == 0) {
      const int index = queue[sends.next++];
      const MessageOp& op = op_at(rank, index);
      ++sends.under_way;
      channels_[{rank, at(op.peer), op.lane}].sends.push_back({index, q});
    }
  }

  bool meet(Channel& channel, std::size_t from, std::size_t to) {
    bool met = false;
    while (!channel.sends.empty() && !channel.recvs.empty()) {
      const Sent sent = channel.sends.front();
      const int received = channel.recvs.front();
      channel.sends.pop_front();
      channel.recvs.pop_front();
      ranks_[from].round.sends.push_back(sent.op);
      ranks_[to].round.recvs.push_back(received);
      ranks_[to].taken[at(received)] = 1;
      --ranks_[from].sends[sent.queue].under_way;
      met = true;
    }
    return met;
  }

  // In order, as MessageCollective does.
  void land(std::size_t rank, std::size_t q) {
    const Queue& queue = programs_[rank].recvs[q];
    RankState::Recvs& recvs = ranks_[rank].recvs[q];
    while (recvs.landed < recvs.posted && ranks_[rank].taken[at(queue[recvs.landed])]) {
      const int index = queue[recvs.landed++];
      if (op_at(rank, index).action == Action::recv || --ranks_[rank].waits[at(index)] == 0) complete(rank, index);
    }
  }

  // And the work that waited for nothing else.
  void complete(std::size_t rank, int first) {
    std::vector<int> done{first};
    while (!done.empty()) {
      const int index = done.back();
      done.pop_back();
      ranks_[rank].waits[at(index)] = kDone;
      --ranks_[rank].left;
      const MessageOp& op = op_at(rank, index);
      if (runs_when_released(op.action)) ranks_[rank].round.work.push_back(index);
      for (std::uint32_t i = 0; i < op.num_next; ++i) {
        const int next = programs_[rank].next[op.first_next + i];
        if (--ranks_[rank].waits[at(next)] == 0 && runs_when_released(op_at(rank, next).action)) done.push_back(next);
      }
    }
  }

  const std::vector<MessageProgram>& programs_;
  MessageLimits limits_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<std::size_t, std::size_t, int>, Channel> channels_;  // by from, to, lane
};

}  // namespace

std::optional<std::vector<MessageRounds>> find_message_rounds(const std::vector<MessageProgram>& ranks,
                                                              const MessageLimits& limits) {
  DryRun run(ranks, limits);
  if (!run.ends()) return std::nullopt;
  return run.take_rounds();
}

bool find_message_deadlock(const std::vector<MessageProgram>& ranks, const MessageLimits& limits) {
  return !find_message_rounds(ranks, limits);
}

}  // namespace lockstep::executors
