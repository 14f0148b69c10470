#include "collectives/executors/message_program.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "core/index.h"

namespace lockstep::executors {
namespace {

// Sends and posted receives of a channel that are not matched yet: operations of the two ends.
struct UnmatchedOperations {
  std::deque<int> sends;
  std::deque<int> recvs;
};
using UnmatchedByChannel = std::map<std::tuple<int, int, int>, UnmatchedOperations>;  // by from, to, lane

// One rank without memory: logs its operations, round by round.
class DryPort {
 public:
  using Request = int;  // the operation

  DryPort(const MessageProgram& program, int rank, UnmatchedByChannel& channels)
      : program_(program), rank_(rank), channels_(channels), met_(program.ops.size(), 0) {}

  Request recv(int op) {
    channels_[{op_at(op).peer, rank_, op_at(op).lane}].recvs.push_back(op);
    return op;
  }
  Request send(int op) {
    channels_[{rank_, op_at(op).peer, op_at(op).lane}].sends.push_back(op);
    return op;
  }
  bool done(Request op) const { return met_[at(op)] != 0; }
  void work(int op) { round_.work.push_back(op); }

  void meet(int op) {
    met_[at(op)] = 1;
    (is_recv(op_at(op).action) ? round_.recvs : round_.sends).push_back(op);
  }
  // Steps from here on belong to the next round, if there was a message in this one.
  void close_round() {
    if (!round_.sends.empty() || !round_.recvs.empty()) rounds_.push_back(std::exchange(round_, {}));
  }
  MessageRounds take_rounds() {
    if (!round_.work.empty()) rounds_.push_back(std::exchange(round_, {}));
    return std::move(rounds_);
  }

 private:
  const MessageOp& op_at(int op) const { return program_.ops[at(op)]; }

  const MessageProgram& program_;
  const int rank_;
  UnmatchedByChannel& channels_;
  std::vector<char> met_;  // [op] true for matched messages
  MessageRounds rounds_;
  MessageRound round_;  // the round that is being built
};

class DryRun {
 public:
  DryRun(const std::vector<MessageProgram>& programs, const MessageLimits& limits) {
    for (const MessageProgram& program : programs) {
      ports_.push_back(std::make_unique<DryPort>(program, static_cast<int>(ports_.size()), channels_));
      ranks_.emplace_back(program, limits, *ports_.back());
    }
  }

  bool ends() {
    for (auto& rank : ranks_) rank.begin();
    while (next_round()) {
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.ended(); });
  }

  std::vector<MessageRounds> take_rounds() {
    std::vector<MessageRounds> rounds;
    for (auto& port : ports_) rounds.push_back(port->take_rounds());
    return rounds;
  }

 private:
  // Returns whether any message moved.
  bool next_round() {
    for (auto& rank : ranks_) rank.start();
    bool moved = false;
    for (auto& [ends, channel] : channels_) {
      while (!channel.sends.empty() && !channel.recvs.empty()) {
        ports_[at(std::get<0>(ends))]->meet(channel.sends.front());
        ports_[at(std::get<1>(ends))]->meet(channel.recvs.front());
        channel.sends.pop_front();
        channel.recvs.pop_front();
        moved = true;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ports_[r]->close_round();
      ranks_[r].take();
    }
    return moved;
  }

  UnmatchedByChannel channels_;
  std::vector<std::unique_ptr<DryPort>> ports_;  // [rank]
  std::vector<MessageRun<DryPort>> ranks_;
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
