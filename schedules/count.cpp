#include "schedules/count.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "schedules/messages.h"
#include "schedules/needs.h"

namespace lockstep::schedules {
namespace {

PeakActivations peak_of(const Schedule& schedule, const std::vector<Action>& list, double w_share) {
  const double unit = unit_of(schedule);
  std::int64_t in_flight = 0;
  std::int64_t pending = 0;
  std::int64_t leaving = 0;
  PeakActivations peak;
  for (const Action& action : list) {
    const std::int64_t tokens = tokens_of(schedule, action.microbatch);
    if (action.op == Op::forward || action.op == Op::fetch) in_flight += tokens;
    if (action.op == Op::backward || action.op == Op::input_gradient) in_flight -= tokens;
    if (action.op == Op::input_gradient) pending += tokens;
    if (action.op == Op::weight_gradient) pending -= tokens;
    const auto held = static_cast<double>(in_flight);
    peak.until_weight_gradient =
        std::max(peak.until_weight_gradient, (held + w_share * static_cast<double>(pending)) / unit);
    peak.until_input_gradient = std::max(peak.until_input_gradient, held / unit);
    if (is_compute(action.op)) in_flight -= std::exchange(leaving, 0);
    if (action.op == Op::evict) leaving += tokens;
  }
  return peak;
}

using Pair = std::pair<std::int32_t, std::int32_t>;
using Order = std::map<Pair, std::vector<std::size_t>>;  // products in the order in which they are sent or received

// Peak number of earlier messages that still wait when a message is received.
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

std::int64_t tokens_of(const Schedule& schedule, std::int32_t microbatch) {
  if (schedule.slice_tokens.empty()) return 1;
  return schedule.slice_tokens[static_cast<std::size_t>(microbatch % schedule.slices())];
}

double unit_of(const Schedule& schedule) {
  const auto& lengths = schedule.slice_tokens;
  const std::int64_t whole = lengths.empty() ? 1 : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return static_cast<double>(whole * schedule.chunks());
}

double most_evicted(const Schedule& schedule, std::size_t rank, const std::function<double(const Action&)>& size) {
  double away = 0;
  double returning = 0;
  double most = 0;
  for (const Action& action : schedule.of_rank[rank]) {
    if (action.op == Op::evict) away += size(action);
    most = std::max(most, away);
    if (is_compute(action.op)) away -= std::exchange(returning, 0);
    if (action.op == Op::fetch) returning += size(action);
  }
  return most;
}

std::vector<RankCounts> count_ranks(const Schedule& schedule, double w_share) {
  std::vector<RankCounts> counts;
  for (const auto& list : schedule.of_rank) {
    RankCounts rank{.peak = peak_of(schedule, list, w_share)};
    for (const Action& action : list) {
      rank.sends += receiver_of(schedule, action).has_value() ? 1 : 0;
      rank.evictions += action.op == Op::evict ? 1 : 0;
    }
    counts.push_back(rank);
  }
  const auto tokens = [&](const Action& action) { return static_cast<double>(tokens_of(schedule, action.microbatch)); };
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const double held = most_evicted(schedule, r, tokens) / unit_of(schedule);
    PeakActivations& other = counts[counts.size() - 1 - r].peak;
    other.until_weight_gradient += held;
    other.until_input_gradient += held;
  }
  return counts;
}

Ordering count_ordering(const Schedule& schedule) {
  Order sent;
  Order received;
  const Schedule lowered = with_messages(schedule);
  for (std::int32_t rank = 0; rank < lowered.num_ranks(); ++rank) {
    for (const Action& action : lowered.of_rank[static_cast<std::size_t>(rank)]) {
      if (!is_between_stages(action.op)) continue;
      const std::int32_t peer = peer_of(lowered, action);
      const std::size_t place = product_index(lowered, message_of(action));
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
    for (const Action& action : schedule.of_rank[r])
      work += time_of(action, times, schedule.chunks(), schedule.slice_tokens);
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
