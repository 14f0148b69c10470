#include "schedules/transport_check.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "schedules/messages.h"
#include "schedules/token.h"

namespace lockstep::schedules {
namespace {

class Channels {
 public:
  Channels(const Schedule& schedule, const ChannelRules& rules)
      : s_(schedule),
        rules_(rules),
        at_(schedule.of_rank.size()),
        sent_(num_products(schedule)),
        received_(num_products(schedule)) {
    for (std::int32_t r = 0; r < schedule.num_ranks(); ++r) runnable_.push_back(r);
  }

  std::string run() {
    while (!runnable_.empty()) {
      const std::int32_t rank = runnable_.back();
      runnable_.pop_back();
      while (current(rank) != nullptr && step(rank)) {
      }
    }
    std::string stuck;
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      if (const Action* action = current(r)) stuck += (stuck.empty() ? "" : "; ") + place_text(r, *action);
    }
    return stuck;
  }

 private:
  const Action* current(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return at_[r] == s_.of_rank[r].size() ? nullptr : &s_.of_rank[r][at_[r]];
  }
  void advance(std::int32_t rank) { ++at_[static_cast<std::size_t>(rank)]; }
  void wake(std::int32_t rank) { runnable_.push_back(rank); }

  // Advances the rank; returns true if it made progress.
  bool step(std::int32_t rank) {
    if (!is_between_stages(current(rank)->op)) {
      advance(rank);
      return true;
    }
    switch (rules_.waiting) {
      case Waiting::blocking:
        return step_blocking(rank);
      case Waiting::batched:
        return step_batched(rank);
      case Waiting::buffered:
        return step_buffered(rank);
    }
    return false;
  }

  bool step_blocking(std::int32_t rank) {
    const Action& mine = *current(rank);
    const std::int32_t peer = peer_of(s_, mine);
    const Action* const other = current(peer);
    if (other == nullptr || !is_between_stages(other->op) || is_send(other->op) == is_send(mine.op)) return false;
    if (product_index(s_, message_of(*other)) != product_index(s_, message_of(mine))) return false;
    advance(rank);
    advance(peer);
    wake(peer);
    return true;
  }

  bool step_batched(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::size_t end = at_[r];
    while (end < s_.of_rank[r].size() && !is_compute(s_.of_rank[r][end].op)) ++end;
    bool all_met = true;
    for (std::size_t i = at_[r]; i < end; ++i) {
      const Action& message = s_.of_rank[r][i];
      if (!is_between_stages(message.op)) continue;
      const std::size_t place = product_index(s_, message_of(message));
      const bool send = is_send(message.op);
      std::vector<bool>& mine = send ? sent_ : received_;
      if (!mine[place]) wake(peer_of(s_, message));
      mine[place] = true;
      all_met = all_met && (send ? received_ : sent_)[place];
    }
    if (all_met) at_[r] = end;
    return all_met;
  }

  bool step_buffered(std::int32_t rank) {
    const Action& message = *current(rank);
    const std::int32_t peer = peer_of(s_, message);
    const std::size_t place = product_index(s_, message_of(message));
    const bool send = is_send(message.op);
    std::int32_t& under_way = in_flight_[send ? std::pair(rank, peer) : std::pair(peer, rank)];
    if (send ? under_way == rules_.slots : !sent_[place]) return false;
    under_way += send ? 1 : -1;
    if (send) sent_[place] = true;
    advance(rank);
    wake(peer);
    return true;
  }

  std::string place_text(std::int32_t rank, const Action& action) const {
    std::string text = "rank " + std::to_string(rank) + " at " + token_of(action, s_.slices());
    if (!is_between_stages(action.op)) return text;
    return text + (is_send(action.op) ? " to" : " from") + " rank " + std::to_string(peer_of(s_, action));
  }

  const Schedule& s_;
  const ChannelRules rules_;
  std::vector<std::size_t> at_;  // index in each rank's list
  std::vector<bool> sent_;       // by product_index(): the send has started
  std::vector<bool> received_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> in_flight_;  // by (sender, receiver)
  std::vector<std::int32_t> runnable_;
};

}  // namespace

std::string hang_of(const Schedule& with_messages, const ChannelRules& rules) {
  return Channels(with_messages, rules).run();
}

}  // namespace lockstep::schedules
