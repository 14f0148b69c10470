#include "schedules/play.h"

#include <algorithm>

#include "core/error.h"
#include "schedules/slices.h"
#include "schedules/token.h"

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
    std::size_t end = begin + 1;
    while (list[end - 1].with_next && end < list.size()) ++end;
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
    for (const Product product : {Product::activations, Product::gradient}) {
      if (!gives(action, product)) continue;
      const std::size_t place = product_index(s_, {product, action.stage, action.microbatch});
      ready_[place] = span.end;
      if (waiting_[place] != kNobody && waiting_[place] != rank) runnable_.push_back(waiting_[place]);
    }
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

}  // namespace lockstep::schedules
