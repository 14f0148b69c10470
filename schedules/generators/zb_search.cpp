#include "schedules/generators/zb_search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/count.h"
#include "schedules/generators/generators.h"
#include "schedules/placement.h"

namespace lockstep::schedules {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// What the paper tries both ways.
struct Choices {
  bool forwards_past_first_backward =
      false;                           // before the first backward one may still begin, though that one then waits
  bool forward_first = false;          // where a forward and a backward could begin at the same time
  bool weights_in_short_gaps = false;  // where the wait is shorter than a weight gradient
};

// A rank while its list is written.
struct Rank {
  double clock = 0;
  double idle = 0;
  std::int32_t held = 0;  // microbatches with activations
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
      : w_(wanted), choices_(choices), ranks_(static_cast<std::size_t>(wanted.shape.ranks)) {}

  Schedule run() {
    while (true) {
      const std::optional<Step> step = next_step();
      if (!step) break;
      take(*step);
    }
    Schedule made{.name = "zb_search",
                  .num_microbatches = w_.shape.microbatches,
                  .stages_a_pipe = w_.shape.ranks,
                  .rank_of_stage = looped_placement(w_.shape.ranks, 1)};
    for (Rank& rank : ranks_) made.of_rank.push_back(std::move(rank.list));
    return made;
  }

 private:
  struct Step {
    std::int32_t rank = 0;
    Op op = Op::forward;
    double start = 0;
  };

  const Rank& rank(std::int32_t r) const { return ranks_[static_cast<std::size_t>(r)]; }
  double duration(Op op) const { return time_of({op, 0, 0}, w_.times, 1); }
  bool is_last(std::int32_t r) const { return r + 1 == w_.shape.ranks; }

  // When what the next forward, or backward, needs is there; kUnknown while nobody has planned it.
  double forward_arrival(std::int32_t r) const {
    const std::int32_t j = rank(r).forwards();
    if (j == w_.shape.microbatches) return kUnknown;
    if (r == 0) return 0;
    const Rank& before = rank(r - 1);
    return j < before.forwards() ? before.forward_ends[static_cast<std::size_t>(j)] + w_.times.message : kUnknown;
  }
  double gradient_arrival(std::int32_t r) const {
    const std::int32_t j = rank(r).gradients();
    if (j == rank(r).forwards()) return kUnknown;
    if (is_last(r)) return rank(r).forward_ends[static_cast<std::size_t>(j)];
    const Rank& behind = rank(r + 1);
    return j < behind.gradients() ? behind.gradient_ends[static_cast<std::size_t>(j)] + w_.times.message : kUnknown;
  }
  // No gradient comes to a rank before its first microbatch has been to the last rank and back.
  double first_gradient(std::int32_t r) const {
    const std::int32_t behind = w_.shape.ranks - 1 - r;
    return w_.shape.ranks * w_.times.forward + (w_.shape.ranks - 1 + behind) * w_.times.message +
           behind * w_.times.input_gradient;
  }

  bool may_forward(std::int32_t r, double start) const {
    if (rank(r).held == w_.most_held) return false;
    if (rank(r).gradients() > 0 || rank(r).forwards() == 0) return true;
    const double limit = choices_.forwards_past_first_backward ? start : start + w_.times.forward;
    return limit <= first_gradient(r) + 1e-9;
  }

  // Of two that can both be done, from those times on: in turn if nothing waits, else what comes first.
  bool prefers_forward(const Rank& mine, double forward, double gradient) const {
    if (std::max(forward, gradient) <= mine.clock) return mine.forward_next;
    return forward == gradient ? choices_.forward_first : forward < gradient;
  }

  // What the rank does next, as far as is known; nothing while it waits for others' plans.
  std::optional<Step> wish_of(std::int32_t r) const {
    const Rank& mine = rank(r);
    const double forward = std::max(mine.clock, forward_arrival(r));
    const double gradient = std::max(mine.clock, gradient_arrival(r));
    const bool can_forward = forward != kUnknown && may_forward(r, forward);
    const bool can_gradient = gradient != kUnknown;
    if (!can_forward && !can_gradient) return std::nullopt;
    const bool forward_now = can_forward && (!can_gradient || prefers_forward(mine, forward, gradient));
    return Step{r, forward_now ? Op::forward : Op::input_gradient, forward_now ? forward : gradient};
  }

  // A weight's gradient in the time that the rank would wait, or in place of a wait for memory.
  Step with_weights(const Step& wish) const {
    const Rank& mine = rank(wish.rank);
    const double gap = wish.start - mine.clock;
    if (!mine.has_pending() || gap <= 0) return wish;
    double most_idle = 0;
    for (const Rank& other : ranks_) most_idle = std::max(most_idle, other.idle);
    const bool fits = gap >= duration(Op::weight_gradient) - 1e-9;
    const bool worst = choices_.weights_in_short_gaps && mine.idle + gap > most_idle;
    return fits || worst ? Step{wish.rank, Op::weight_gradient, mine.clock} : wish;
  }

  // The earliest thing that any rank can do.
  std::optional<Step> next_step() const {
    std::optional<Step> best;
    for (std::int32_t r = 0; r < w_.shape.ranks; ++r) {
      auto wish = wish_of(r);
      if (wish) wish = with_weights(*wish);
      const bool at_the_cap = rank(r).held == w_.most_held && rank(r).forwards() < w_.shape.microbatches;
      const bool ran_out = rank(r).gradients() == w_.shape.microbatches;
      if (rank(r).has_pending() && (ran_out || (at_the_cap && (!wish || wish->start > rank(r).clock)))) {
        wish = Step{r, Op::weight_gradient, rank(r).clock};
      }
      if (wish && (!best || wish->start < best->start)) best = wish;
    }
    if (best) return best;
    for (std::int32_t r = 0; r < w_.shape.ranks; ++r) {
      if (rank(r).has_pending()) return Step{r, Op::weight_gradient, rank(r).clock};
    }
    return std::nullopt;
  }

  void take(const Step& step) {
    Rank& mine = ranks_[static_cast<std::size_t>(step.rank)];
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
    } else {
      microbatch = mine.weights++;
      --mine.held;
    }
    mine.list.push_back({step.op, step.rank, microbatch});
  }

  const ZbSearch& w_;
  const Choices choices_;
  std::vector<Rank> ranks_;
};

// The hand-made ones, where they hold no more than is allowed.
std::vector<Schedule> made_by_hand(const ZbSearch& wanted) {
  std::vector<Schedule> made{zb_h1(wanted.shape), zb_h2(wanted.shape)};
  std::erase_if(made, [&](const Schedule& schedule) {
    const std::vector<RankCounts> ranks = count_ranks(schedule);
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](const RankCounts& rank) { return rank.peak.until_weight_gradient > wanted.most_held; });
  });
  return made;
}

class Best {
 public:
  explicit Best(const Times& times) : times_(times) {}

  void consider(Schedule made) {
    const Spans spans = spans_of(made, times_, play(made, times_));
    const bool better =
        spans.own < spans_.own - kSame || (spans.own < spans_.own + kSame && spans.makespan < spans_.makespan - kSame);
    if (!better) return;
    best_ = std::move(made);
    spans_ = spans;
  }
  Schedule take() { return std::move(best_); }

 private:
  static constexpr double kSame = 1e-9;

  Times times_;
  Schedule best_;
  Spans spans_{.makespan = kUnknown, .own = kUnknown};
};

}  // namespace

Schedule zb_search(const ZbSearch& wanted) {
  Best best(wanted.times);
  for (unsigned bits = 0; bits < 8; ++bits) {
    best.consider(Greedy(wanted, {(bits & 1U) != 0, (bits & 2U) != 0, (bits & 4U) != 0}).run());
  }
  for (Schedule& made : made_by_hand(wanted)) best.consider(std::move(made));
  Schedule found = best.take();
  found.name = "zb_search";
  return found;
}

}  // namespace lockstep::schedules
