#include "collectives/executors/paced_call.h"

#include <algorithm>
#include <vector>

namespace lockstep::executors {

using transports::PacedRank;

PacedCall::PacedCall(transports::LocalWorld& world, const plan::Program& program, const ProgramTime& time,
                     const std::string& label)
    : world_(world),
      group_(world.group()),
      program_(program.ranks[static_cast<std::size_t>(world.rank())]),
      time_(time),
      label_(label),
      mine_(group_.board(world.rank()).paced),
      costs_ns_(world.arena().make_array<std::int64_t>(std::max<std::size_t>(time.num_costs(), 1))) {}

void PacedCall::enter(std::uint64_t call) {
  call_ = call;
  mine_.costs_ns = costs_ns_;
  mine_.entered_ns = entry_ns();
  mine_.entered.open(call);
  for (int peer = 0; peer < world_.num_ranks(); ++peer) {
    world_.wait(peer, group_.board(peer).paced.entered, call, label_);
  }
}

std::int64_t PacedCall::entry_ns() const {
  // allowed for waking up, and for the distance between calls that follow each other at once
  constexpr std::int64_t kMostNs = 100'000;
  const std::int64_t now_ns = transports::now_ns();
  const std::int64_t late_ns = mine_.woken_ns - mine_.leaves_ns;
  const bool comes_at_once = mine_.woken_ns != 0 && now_ns - mine_.woken_ns <= kMostNs;
  return comes_at_once && late_ns <= kMostNs ? now_ns - late_ns : now_ns;
}

// The count acquires what the other ranks have noted, and the counter tells them when to leave. No rank enters the next
// call before that.
void PacedCall::leave() {
  mine_.calls_done.store(call_, std::memory_order_release);
  const auto ranks = static_cast<std::uint64_t>(world_.num_ranks());
  transports::PacedCalls& calls = group_.paced_calls();
  if (calls.done.fetch_add(1, std::memory_order_acq_rel) + 1 == call_ * ranks) {
    play();
    calls.played.open(call_);
  } else {
    world_.wait(late_peer(), calls.played, call_, label_);
  }
  wait_for_stated_time();
}

void PacedCall::play() {
  std::vector<ProgramTime::RankClock> clocks;
  for (int rank = 0; rank < world_.num_ranks(); ++rank) {
    const PacedRank& noted = group_.board(rank).paced;
    clocks.push_back({noted.entered_ns, noted.costs_ns});
  }
  const auto leaves_ns = time_.play(
      clocks, [this](int rank) { return group_.number_of(rank); }, *group_.links());
  for (int rank = 0; rank < world_.num_ranks(); ++rank) {
    group_.board(rank).paced.leaves_ns = leaves_ns[static_cast<std::size_t>(rank)];
  }
}

// Rank to name in the error if no rank plays the call.
int PacedCall::late_peer() const {
  for (int peer = 0; peer < world_.num_ranks(); ++peer) {
    if (group_.board(peer).paced.calls_done.load(std::memory_order_acquire) < call_) return peer;
  }
  return (world_.rank() + 1) % world_.num_ranks();
}

void PacedCall::wait_for_stated_time() {
  constexpr std::int64_t kLongestNapNs = 20'000'000;  // so that an abort is noticed soon
  mine_.woken_ns = 0;
  for (std::int64_t now_ns = transports::now_ns(); now_ns < mine_.leaves_ns; now_ns = transports::now_ns()) {
    if (group_.abort().raised()) group_.abort().throw_raised();
    const std::int64_t until_ns = std::min(mine_.leaves_ns, now_ns + kLongestNapNs);
    if (world_.wait_policy().yields()) {
      transports::wait_until_ns(until_ns);
    } else {
      transports::sleep_until_ns(until_ns);
    }
    mine_.woken_ns = transports::now_ns();
  }
}

}  // namespace lockstep::executors
