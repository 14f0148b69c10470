#include "schedules/count.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedules/messages.h"
#include "schedules/needs.h"

namespace lockstep::schedules {
namespace {

PeakActivations peak_of(const std::vector<Action>& list, std::int32_t chunks, double w_share) {
  std::int32_t in_flight = 0;
  std::int32_t pending = 0;
  PeakActivations peak;
  for (const Action& action : list) {
    if (action.op == Op::forward) ++in_flight;
    if (action.op == Op::backward || action.op == Op::input_gradient) --in_flight;
    if (action.op == Op::input_gradient) ++pending;
    if (action.op == Op::weight_gradient) --pending;
    peak.until_weight_gradient = std::max(peak.until_weight_gradient, (in_flight + w_share * pending) / chunks);
    peak.until_input_gradient = std::max(peak.until_input_gradient, static_cast<double>(in_flight) / chunks);
  }
  return peak;
}

using Pair = std::pair<std::int32_t, std::int32_t>;
using Order = std::map<Pair, std::vector<std::size_t>>;  // places of what is sent, or received, in turn

// How many of what was sent before the message that is taken are still waiting, at most.
std::int32_t most_set_aside(const std::vector<std::size_t>& sent, const std::vector<std::size_t>& received) {
  std::int32_t most = 0;
  std::vector<std::size_t> waiting = sent;
  for (const std::size_t place : received) {
    const auto at = std::find(waiting.begin(), waiting.end(), place);
    most = std::max(most, static_cast<std::int32_t>(at - waiting.begin()));
    waiting.erase(at);
  }
  return most;
}

}  // namespace

std::vector<RankCounts> count_ranks(const Schedule& schedule, double w_share) {
  std::vector<RankCounts> counts;
  for (const auto& list : schedule.of_rank) {
    RankCounts rank{.peak = peak_of(list, schedule.chunks(), w_share)};
    for (const Action& action : list) rank.sends += receiver_of(schedule, action).has_value() ? 1 : 0;
    counts.push_back(rank);
  }
  return counts;
}

Ordering count_ordering(const Schedule& schedule) {
  Order sent;
  Order received;
  const Schedule lowered = with_messages(schedule);
  for (std::int32_t rank = 0; rank < lowered.num_ranks(); ++rank) {
    for (const Action& action : lowered.of_rank[static_cast<std::size_t>(rank)]) {
      if (!is_message(action.op)) continue;
      const std::int32_t peer = peer_of(lowered, action);
      const std::size_t place = place_of(lowered, message_of(action));
      if (is_send(action.op)) {
        sent[{rank, peer}].push_back(place);
      } else {
        received[{peer, rank}].push_back(place);
      }
    }
  }
  Ordering ordering{.pairs = static_cast<std::int32_t>(sent.size())};
  for (const auto& [pair, places] : sent) {
    if (places == received[pair]) continue;
    ++ordering.pairs_out_of_order;
    ordering.set_aside = std::max(ordering.set_aside, most_set_aside(places, received[pair]));
  }
  return ordering;
}

Spans spans_of(const Schedule& schedule, const Times& times, const Timeline& timeline) {
  Spans spans;
  double first = 0;
  double last = 0;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    double work = 0;
    for (const Action& action : schedule.of_rank[r]) work += time_of(action, times, schedule.chunks());
    spans.work = std::max(spans.work, work);
    spans.of_rank.push_back(timeline[r].empty() ? 0 : timeline[r].back().end - timeline[r].front().start);
    if (timeline[r].empty()) continue;
    first = r == 0 ? timeline[r].front().start : std::min(first, timeline[r].front().start);
    last = std::max(last, timeline[r].back().end);
  }
  spans.makespan = last - first;
  for (double own : spans.of_rank) spans.own = std::max(spans.own, own);
  return spans;
}

Bubbles bubbles_of(const Spans& spans) {
  const double idle = spans.makespan - spans.work;
  const double own_idle = spans.own - spans.work;
  return {idle / spans.work, idle / spans.makespan, own_idle / spans.own, own_idle / spans.work};
}

}  // namespace lockstep::schedules
