#include "schedules/play.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "schedules/schedule.h"
#include "schedules/slices.h"

namespace lockstep::schedules {
namespace {

constexpr double kNever = -1;
constexpr std::int32_t kNobody = -1;

class Play {
 public:
  Play(const Schedule& schedule, const Times& times)
      : s_(schedule),
        times_(times),
        ready_(num_products(schedule), kNever),
        waiting_(num_products(schedule), kNobody),
        next_(schedule.of_rank.size()),
        clock_(schedule.of_rank.size()) {
    for (const auto& list : schedule.of_rank) timeline_.emplace_back(list.size());
    for (std::int32_t r = 0; r < schedule.num_ranks(); ++r) runnable_.push_back(r);
  }

  void run() {
    while (!runnable_.empty()) {
      const std::int32_t rank = runnable_.back();
      runnable_.pop_back();
      while (run_group(rank)) {
      }
    }
  }

  Timeline take_timeline() { return std::move(timeline_); }

  std::vector<Waiter> circle() const {
    std::vector<Waiter> path;
    for (std::int32_t rank = first_stuck(); rank != kNobody;) {
      const auto seen = std::find_if(path.begin(), path.end(), [&](const Waiter& w) { return w.rank == rank; });
      if (seen != path.end()) return {seen, path.end()};
      path.push_back(waiter_of(rank));
      rank = s_.rank_of_stage[static_cast<std::size_t>(path.back().need.stage)];
      if (is_finished(rank)) return path;  // no rank's list has the missing product
    }
    return path;
  }

 private:
  // Runs the rank's next (fused) actions; false if there are none or the rank has to wait for an input.
  bool run_group(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto& list = s_.of_rank[r];
    const std::size_t begin = next_[r];
    if (begin == list.size()) return false;
    const std::size_t end = end_of_fused(list, begin);
    double start = clock_[r];
    double duration = 0;
    for (std::size_t i = begin; i < end; ++i) {
      for (const Need& need : needs_of(s_, list[i])) {
        const double arrival = arrival_of(need, rank);
        if (arrival == kNever) {
          waiting_[product_index(s_, need)] = rank;
          return false;
        }
        start = std::max(start, arrival);
      }
      duration += time_of(list[i], times_, s_.chunks(), s_.slice_tokens);
    }
    for (std::size_t i = begin; i < end; ++i) finish(rank, i, {start, start + duration});
    next_[r] = end;
    clock_[r] = start + duration;
    return true;
  }

  double arrival_of(const Need& need, std::int32_t rank) const {
    const double end = ready_[product_index(s_, need)];
    if (end == kNever) return kNever;
    return s_.rank_of_stage[static_cast<std::size_t>(need.stage)] == rank ? end : end + times_.message;
  }

  void finish(std::int32_t rank, std::size_t i, const Span& span) {
    const auto r = static_cast<std::size_t>(rank);
    const Action& action = s_.of_rank[r][i];
    timeline_[r][i] = span;
    const auto product = product_of(action.op);
    if (!product) return;
    const std::size_t place = product_index(s_, {*product, action.stage, action.microbatch});
    ready_[place] = span.end;
    if (waiting_[place] != kNobody && waiting_[place] != rank) runnable_.push_back(waiting_[place]);
  }

  bool is_finished(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return next_[r] == s_.of_rank[r].size();
  }
  std::int32_t first_stuck() const {
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      if (!is_finished(r)) return r;
    }
    return kNobody;
  }
  // The first missing input of the rank's next actions.
  Waiter waiter_of(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t i = next_[r]; i < s_.of_rank[r].size(); ++i) {
      for (const Need& need : needs_of(s_, s_.of_rank[r][i])) {
        if (ready_[product_index(s_, need)] == kNever) return {rank, i, need};
      }
    }
    return {rank, next_[r], {}};
  }

  const Schedule& s_;
  const Times& times_;
  std::vector<double> ready_;          // per product: end of its producer
  std::vector<std::int32_t> waiting_;  // per product: the rank that waits for it
  std::vector<std::size_t> next_;      // per rank
  std::vector<double> clock_;
  std::vector<std::int32_t> runnable_;
  Timeline timeline_;
};

}  // namespace

double time_of(const Action& action, const Times& times, std::int32_t chunks,
               std::span<const std::int64_t> slice_tokens) {
  SliceShare slice;
  if (!slice_tokens.empty() && is_compute(action.op)) {
    slice = slice_share(slice_tokens, action.microbatch % static_cast<std::int32_t>(slice_tokens.size()));
  }
  const double share = work_share(slice, times.attention);
  switch (action.op) {
    case Op::forward:
      return times.forward * share / chunks;
    case Op::backward:
      return (times.input_gradient * share + times.weight_gradient * slice.tokens()) / chunks;
    case Op::input_gradient:
      return times.input_gradient * share / chunks;
    case Op::weight_gradient:
      return times.weight_gradient * slice.tokens() / chunks;
    default:
      return 0;
  }
}

Timeline play(const Schedule& schedule, const Times& times) {
  Play played(schedule, times);
  played.run();
  const std::vector<Waiter> circle = played.circle();
  if (circle.empty()) return played.take_timeline();
  throw core::usage_error(schedule.name + ": deadlock: " + text_of(schedule, circle));
}

std::vector<Waiter> waiting_cycle(const Schedule& schedule) {
  const Times times;
  Play played(schedule, times);
  played.run();
  return played.circle();
}

std::string text_of(const Schedule& schedule, const std::vector<Waiter>& circle) {
  std::string text;
  for (const Waiter& waiter : circle) {
    const Action& action = schedule.of_rank[static_cast<std::size_t>(waiter.rank)][waiter.index];
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(waiter.rank) + " at " +
            token_of(action, schedule.slices()) + " needs " +
            (waiter.need.product == Product::activations ? "the activations" : "the gradient") + " of stage " +
            std::to_string(waiter.need.stage);
  }
  return text;
}

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

using RankPair = std::pair<std::int32_t, std::int32_t>;
using ProductOrder =
    std::map<RankPair, std::vector<std::size_t>>;  // products in the order in which they are sent or received

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
  ProductOrder sent;
  ProductOrder received;
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
  const double idle = std::max(spans.makespan - spans.work, 0.0);  // below 0 only by noise of measured times
  const double own_idle = std::max(spans.own - spans.work, 0.0);
  return {idle / spans.work, idle / spans.makespan, own_idle / spans.own, own_idle / spans.work};
}

}  // namespace lockstep::schedules
