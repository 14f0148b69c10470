#include "schedules/generators/zero_bubble.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/generators/rank_list.h"
#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

constexpr double kSame = 1e-9;

class MakespanBound {
 public:
  MakespanBound(const PipelineShape& shape, const Times& times, const MemoryLimit& memory)
      : p_(shape.ranks),
        m_(shape.microbatches),
        t_(times),
        memory_(memory),
        most_in_flight_(std::min(m_, most_units(memory.most, 1))) {}

  double work() const { return m_ * (t_.forward + t_.input_gradient + t_.weight_gradient); }

  // Time of a microbatch from its forward on rank r to the end of its input gradient there.
  double round_trip(std::int32_t r) const {
    return (p_ - r) * (t_.forward + t_.input_gradient) + 2 * (p_ - 1 - r) * t_.message;
  }

  // From the start of its last forward on, rank r runs the input gradients of the microbatches in flight and the
  // pending weight gradients; the memory limit bounds both. It waits for the rest of the last microbatch's round trip.
  double idle_of_drain(std::int32_t r) const {
    double most_work = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      const std::int32_t left = in_flight + most_pending(in_flight);
      most_work = std::max(most_work, in_flight * t_.input_gradient + left * t_.weight_gradient);
    }
    return std::max(0.0, round_trip(r) + t_.weight_gradient - t_.forward - most_work);
  }

  // Forwards before the first backward, from the last rank to the first: each as few as keep the rank's waits within
  // `most_idle`, so that its first backward, and the first backwards of the ranks before it, are as early as possible.
  std::vector<std::int32_t> warm_up(double most_idle) const {
    std::vector<std::int32_t> forwards(static_cast<std::size_t>(p_));
    double first_backward = 0;  // relative to the start of the rank's first forward
    for (std::int32_t r = p_ - 1; r >= 0; --r) {
      const double arrival =
          r + 1 == p_ ? t_.forward : first_backward + t_.forward + t_.input_gradient + 2 * t_.message;
      const std::int32_t count = fewest_forwards(arrival, most_idle, idle_of_drain(r));
      if (count == 0) return {};
      first_backward = std::max(arrival, count * t_.forward);
      forwards[static_cast<std::size_t>(r)] = count;
    }
    return forwards;
  }

  // Lower bound of the worst rank's waits in warm-up and drain.
  double idle() const {
    double low = 0;
    double high = round_trip(0) + t_.weight_gradient + idle_of_drain(0);
    if (!warm_up(0).empty()) return 0;
    for (int halving = 0; halving < 60; ++halving) {
      const double middle = (low + high) / 2;
      (warm_up(middle).empty() ? low : high) = middle;
    }
    return low;
  }

  // The last rank's forwards and input gradients lie between the first forward's trip there and the last gradient's
  // trip back, as do the weight gradients that make room for its last forward.
  double through_last_rank() const {
    std::int32_t late = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      late = std::max(late, in_flight + most_pending(in_flight));
    }
    const double there_and_back = (p_ - 1) * (t_.forward + t_.input_gradient + 2 * t_.message);
    return there_and_back + m_ * (t_.forward + t_.input_gradient) + (m_ - late + 1) * t_.weight_gradient;
  }

  // On the first rank, a forward beyond the memory limit waits for a whole round trip and, without further room, for a
  // weight gradient or the next input gradient.
  double rounds() const {
    const std::int32_t k = most_in_flight_;
    const bool room = memory_.w_share <= 0 || most_units(memory_.most - k, memory_.w_share) > 0;
    const double weights = k == 1 ? t_.weight_gradient : std::min(t_.weight_gradient, t_.input_gradient);
    const std::int32_t full_rounds = (m_ - 1) / k;
    return full_rounds * (round_trip(0) + (room ? 0 : weights)) + round_trip(0) + t_.weight_gradient;
  }

  // Activation-time that all microbatches need, divided by the activations that may be held.
  double area() const { return m_ * (round_trip(0) + memory_.w_share * t_.weight_gradient) / memory_.most; }

 private:
  // Weight gradients that may be pending while that many microbatches are in flight.
  std::int32_t most_pending(std::int32_t in_flight) const {
    const std::int32_t others = m_ - in_flight;
    return memory_.w_share <= 0 ? others : std::min(others, most_units(memory_.most - in_flight, memory_.w_share));
  }

  // 0: no such wait. With fewer than all microbatches in flight the first backward comes before the last forward, so
  // the wait for it and the wait in the drain add up.
  std::int32_t fewest_forwards(double arrival, double most_idle, double drain) const {
    const auto at_least = [&](double idle) {
      return std::max<std::int32_t>(1, static_cast<std::int32_t>(std::ceil((arrival - idle) / t_.forward - kSame)));
    };
    if (drain <= most_idle + kSame) {
      const std::int32_t count = at_least(most_idle - drain);
      if (count <= most_in_flight_ && count < m_) return count;
    }
    return m_ <= most_in_flight_ && at_least(most_idle) <= m_ && drain <= most_idle + kSame ? m_ : 0;
  }

  std::int32_t p_;
  std::int32_t m_;
  const Times& t_;
  const MemoryLimit& memory_;
  std::int32_t most_in_flight_;
};

}  // namespace

std::int32_t most_units(double limit, double unit) {
  constexpr double kMost = 1 << 30;
  return static_cast<std::int32_t>(std::floor(std::min(kMost, std::max(0.0, limit / unit) + kSame)));
}

double least_own_span(const PipelineShape& shape, const Times& times, const MemoryLimit& memory) {
  const MakespanBound bound(shape, times, memory);
  return std::max({bound.work() + bound.idle(), bound.through_last_rank(), bound.rounds(), bound.area()});
}

std::vector<std::int32_t> warm_up_forwards(const PipelineShape& shape, const Times& times, const MemoryLimit& memory,
                                           double most_idle) {
  return MakespanBound(shape, times, memory).warm_up(most_idle);
}

namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// The options of the greedy construction; the paper tries each both ways.
struct Choices {
  std::vector<std::int32_t> warm_up = {};  // per rank, most forwards before the first backward
  bool in_turn = false;                    // after the first backward, never two forwards in a row
  bool forward_first = false;              // if a forward and a backward could start at the same time
  bool weights_in_short_gaps = false;      // run W even if the wait is shorter than W
};

// State of a rank while its list is written.
struct SearchedRank {
  double clock = 0;
  double idle = 0;
  double held = 0;  // in microbatches' activations
  std::vector<double> forward_ends = {};
  std::vector<double> gradient_ends = {};
  std::int32_t weights = 0;
  bool forward_next = true;
  std::vector<Action> list = {};

  auto forwards() const { return static_cast<std::int32_t>(forward_ends.size()); }
  auto gradients() const { return static_cast<std::int32_t>(gradient_ends.size()); }
  bool has_pending() const { return weights < gradients(); }
};

class Greedy {
 public:
  Greedy(const ZbSearch& wanted, const Choices& choices)
      : w_(wanted), choices_(choices), ranks_(static_cast<std::size_t>(wanted.shape.ranks)), next_(ranks_.size()) {
    for (std::int32_t r = 0; r < w_.shape.ranks; ++r) plan(r);
  }

  Schedule run() {
    while (const std::optional<Step> step = next_step()) take(*step);
    return schedule_of(w_.shape.ranks, w_.shape.microbatches, w_.shape.ranks, looped_placement(w_.shape.ranks, 1),
                       [&](std::int32_t r) { return std::move(ranks_[static_cast<std::size_t>(r)].list); });
  }

 private:
  struct Step {
    std::int32_t rank = 0;
    Op op = Op::forward;
    double start = 0;
  };

  const SearchedRank& rank(std::int32_t r) const { return ranks_[static_cast<std::size_t>(r)]; }
  double duration(Op op) const { return time_of({op, 0, 0}, w_.times, 1); }
  bool is_last(std::int32_t r) const { return r + 1 == w_.shape.ranks; }

  // Time at which the inputs of the next forward (or backward) arrive; kUnknown until their producer is planned.
  double forward_arrival(std::int32_t r) const {
    const std::int32_t j = rank(r).forwards();
    if (j == w_.shape.microbatches) return kUnknown;
    if (r == 0) return 0;
    const SearchedRank& before = rank(r - 1);
    return j < before.forwards() ? before.forward_ends[static_cast<std::size_t>(j)] + w_.times.message : kUnknown;
  }
  double gradient_arrival(std::int32_t r) const {
    const std::int32_t j = rank(r).gradients();
    if (j == rank(r).forwards()) return kUnknown;
    if (is_last(r)) return rank(r).forward_ends[static_cast<std::size_t>(j)];
    const SearchedRank& next = rank(r + 1);
    return j < next.gradients() ? next.gradient_ends[static_cast<std::size_t>(j)] + w_.times.message : kUnknown;
  }
  bool is_full(std::int32_t r) const { return rank(r).held + 1 > w_.memory.most + 1e-9; }
  bool may_forward(std::int32_t r) const {
    if (is_full(r)) return false;
    if (rank(r).gradients() > 0) return !choices_.in_turn || rank(r).forward_next;
    if (rank(r).forwards() == 0) return true;
    return rank(r).forwards() < choices_.warm_up[static_cast<std::size_t>(r)];
  }

  // Chooses between a forward and a backward that can start at those times: alternately if neither waits, else the
  // earlier.
  bool prefers_forward(const SearchedRank& mine, double forward, double gradient) const {
    if (std::max(forward, gradient) <= mine.clock) return mine.forward_next;
    return forward == gradient ? choices_.forward_first : forward < gradient;
  }

  // The rank's next action; no value while it depends on other ranks' unplanned actions.
  std::optional<Step> wish_of(std::int32_t r) const {
    const SearchedRank& mine = rank(r);
    const double forward = std::max(mine.clock, forward_arrival(r));
    const double gradient = std::max(mine.clock, gradient_arrival(r));
    const bool can_forward = forward != kUnknown && may_forward(r);
    const bool can_gradient = gradient != kUnknown;
    if (!can_forward && !can_gradient) return std::nullopt;
    const bool forward_now = can_forward && (!can_gradient || prefers_forward(mine, forward, gradient));
    return Step{r, forward_now ? Op::forward : Op::input_gradient, forward_now ? forward : gradient};
  }

  // A weight gradient that fills the rank's waiting time, or that frees memory.
  Step with_weights(const Step& wish) const {
    const SearchedRank& mine = rank(wish.rank);
    const double gap = wish.start - mine.clock;
    if (!mine.has_pending() || gap <= 0) return wish;
    const bool fits = gap >= duration(Op::weight_gradient) - 1e-9;
    const bool worst = choices_.weights_in_short_gaps && mine.idle + gap > most_idle_;
    return fits || worst ? Step{wish.rank, Op::weight_gradient, mine.clock} : wish;
  }

  void plan(std::int32_t r) {
    std::optional<Step> wish = wish_of(r);
    if (wish) wish = with_weights(*wish);
    const bool at_the_cap = is_full(r) && rank(r).forwards() < w_.shape.microbatches;
    const bool ran_out = rank(r).gradients() == w_.shape.microbatches;
    if (rank(r).has_pending() && (ran_out || (at_the_cap && (!wish || wish->start > rank(r).clock)))) {
      wish = Step{r, Op::weight_gradient, rank(r).clock};
    }
    next_[static_cast<std::size_t>(r)] = wish;
  }

  // A rank's plan depends on its own and its neighbours' actions, and on the idle time of the worst rank.
  void plan_again(std::int32_t taken, double most_idle) {
    const bool all = most_idle > most_idle_;
    most_idle_ = std::max(most_idle, most_idle_);
    const std::int32_t first = all ? 0 : std::max(0, taken - 1);
    const std::int32_t last = all ? w_.shape.ranks - 1 : std::min(taken + 1, w_.shape.ranks - 1);
    for (std::int32_t r = first; r <= last; ++r) plan(r);
  }

  // The earliest action that any rank can take.
  std::optional<Step> next_step() const {
    std::optional<Step> best;
    for (const std::optional<Step>& wish : next_) {
      if (wish && (!best || wish->start < best->start)) best = wish;
    }
    if (best) return best;
    for (std::int32_t r = 0; r < w_.shape.ranks; ++r) {
      if (rank(r).has_pending()) return Step{r, Op::weight_gradient, rank(r).clock};
    }
    return std::nullopt;
  }

  void take(const Step& step) {
    SearchedRank& mine = ranks_[static_cast<std::size_t>(step.rank)];
    const double end = step.start + duration(step.op);
    if (!mine.list.empty()) mine.idle += step.start - mine.clock;
    mine.clock = end;
    std::int32_t microbatch = 0;
    if (step.op == Op::forward) {
      microbatch = mine.forwards();
      mine.forward_ends.push_back(end);
      ++mine.held;
      mine.forward_next = false;
    } else if (step.op == Op::input_gradient) {
      microbatch = mine.gradients();
      mine.gradient_ends.push_back(end);
      mine.forward_next = true;
      mine.held += w_.memory.w_share - 1;
    } else {
      microbatch = mine.weights++;
      mine.held -= w_.memory.w_share;
    }
    mine.list.push_back({step.op, step.rank, microbatch});
    plan_again(step.rank, mine.idle);
  }

  const ZbSearch& w_;
  const Choices choices_;
  std::vector<SearchedRank> ranks_;
  std::vector<std::optional<Step>> next_;  // per rank, given the current state
  double most_idle_ = 0;
};

// The hand-made schedules that stay within the memory limit.
std::vector<Schedule> made_by_hand(const ZbSearch& wanted) {
  std::vector<Schedule> schedules{zb_h1(wanted.shape), zb_h2(wanted.shape)};
  std::erase_if(schedules, [&](const Schedule& schedule) {
    const std::vector<RankCounts> ranks = count_ranks(schedule, wanted.memory.w_share);
    return std::any_of(ranks.begin(), ranks.end(), [&](const RankCounts& rank) {
      return rank.peak.until_weight_gradient > wanted.memory.most + 1e-9;
    });
  });
  return schedules;
}

class BestSchedule {
 public:
  explicit BestSchedule(const ZbSearch& wanted)
      : times_(wanted.times), bound_(least_own_span(wanted.shape, wanted.times, wanted.memory)) {}

  void consider(Schedule schedule) {
    const Spans spans = spans_of(schedule, times_, play(schedule, times_));
    const bool better =
        spans.own < spans_.own - kSame || (spans.own < spans_.own + kSame && spans.makespan < spans_.makespan - kSame);
    if (!better) return;
    best_ = std::move(schedule);
    spans_ = spans;
  }
  double bound() const { return bound_; }
  Schedule take() { return std::move(best_); }

 private:
  static constexpr double kSame = 1e-9;

  Times times_;
  double bound_;
  Schedule best_;
  Spans spans_{.makespan = kUnknown, .own = kUnknown};
};

// Candidate numbers of forwards before the first backward of each rank: so few that no rank waits for that backward
// longer than the bound allows (or by some more); as many as fit before it arrives; and one more, which delays it.
std::vector<std::vector<std::int32_t>> warm_ups(const ZbSearch& wanted, double bound) {
  const Times& t = wanted.times;
  const double work = wanted.shape.microbatches * (t.forward + t.input_gradient + t.weight_gradient);
  std::vector<std::vector<std::int32_t>> found;
  const auto add = [&](std::vector<std::int32_t> forwards) {
    const bool is_new = std::find(found.begin(), found.end(), forwards) == found.end();
    if (is_new && !forwards.empty()) found.push_back(std::move(forwards));
  };
  for (const double more : {1e-9, 0.125, 0.25, 0.5, 1.0}) {
    add(warm_up_forwards(wanted.shape, t, wanted.memory, bound - work + more * t.forward));
  }
  for (const std::int32_t more : {0, 1}) {
    std::vector<std::int32_t> forwards;
    for (std::int32_t hops = wanted.shape.ranks - 1; hops >= 0; --hops) {
      const double arrival = (hops + 1) * t.forward + hops * (t.input_gradient + 2 * t.message);
      forwards.push_back(most_units(arrival, t.forward) + (hops > 0 ? more : 0));
    }
    add(std::move(forwards));
  }
  return found;
}

}  // namespace

Schedule zb_search(const ZbSearch& wanted) {
  BestSchedule best(wanted);
  for (const std::vector<std::int32_t>& warm_up : warm_ups(wanted, best.bound())) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      const Choices choices{warm_up, (bits & 1U) != 0, (bits & 2U) != 0, (bits & 4U) != 0};
      best.consider(Greedy(wanted, choices).run());
    }
  }
  for (Schedule& schedule : made_by_hand(wanted)) best.consider(std::move(schedule));
  Schedule found = best.take();
  found.name = "zb_search";
  return found;
}

}  // namespace lockstep::schedules
