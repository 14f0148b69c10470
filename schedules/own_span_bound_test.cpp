#include "schedules/own_span_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "schedules/count.h"
#include "schedules/generators/every_schedule.h"
#include "schedules/generators/zb_search.h"

namespace lockstep::schedules {
namespace {

constexpr double kSame = 1e-6;
constexpr std::array kTimes{Times{1, 1, 1, 0}, Times{1, 1.25, 0.5, 0.125}, Times{2, 1, 1.5, 0}, Times{1, 2, 3, 0.5}};
constexpr std::array kShares{0.0, 0.375, 1.0};

// The code below is slow and obvious, and independent of the library's play() and counts.

struct Pass {
  char op;  // F, I or W
  int microbatch;
};
using List = std::vector<Pass>;

// All orders of one rank's actions in which each microbatch goes F, I, W; `in_order`: each kind also goes by
// microbatch.
std::vector<List> all_lists(int microbatches, bool in_order) {
  std::vector<List> lists;
  std::vector<int> done(static_cast<std::size_t>(microbatches));  // actions done of each microbatch
  List list;
  const std::function<void()> extend = [&] {
    if (list.size() == done.size() * 3) lists.push_back(list);
    for (std::size_t j = 0; j < done.size(); ++j) {
      if (done[j] == 3 || (in_order && j > 0 && done[j - 1] <= done[j])) continue;
      list.push_back({"FIW"[done[j]++], static_cast<int>(j)});
      extend();
      list.pop_back();
      --done[j];
    }
  };
  extend();
  return lists;
}

double peak_of(const List& list, double w_share) {
  double held = 0;
  double peak = 0;
  for (const Pass& pass : list) {
    held += pass.op == 'F' ? 1 : (pass.op == 'I' ? w_share - 1 : -w_share);
    peak = std::max(peak, held);
  }
  return peak;
}

// The largest own span of lists in which each action starts as early as possible; infinite if they deadlock.
double own_span(const std::vector<const List*>& lists, const Times& t) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t p = lists.size();
  const std::size_t m = lists[0]->size() / 3;
  std::vector<std::vector<double>> forward(p, std::vector<double>(m, kNever));
  std::vector<std::vector<double>> gradient = forward;
  std::vector<std::size_t> next(p);
  std::vector<double> clock(p);
  std::vector<double> first(p, kNever);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < p; ++r) {
      while (next[r] < lists[r]->size()) {
        const Pass pass = (*lists[r])[next[r]];
        const auto j = static_cast<std::size_t>(pass.microbatch);
        double ready = 0;
        if (pass.op == 'F' && r > 0) ready = forward[r - 1][j] + t.message;
        if (pass.op == 'I' && r + 1 < p) ready = gradient[r + 1][j] + t.message;
        if (ready == kNever) break;
        const double start = std::max(clock[r], ready);
        first[r] = std::min(first[r], start);
        const double time = pass.op == 'F' ? t.forward : (pass.op == 'I' ? t.input_gradient : t.weight_gradient);
        clock[r] = start + time;
        if (pass.op == 'F') forward[r][j] = clock[r];
        if (pass.op == 'I') gradient[r][j] = clock[r];
        ++next[r];
        moved = true;
      }
    }
  }
  double own = 0;
  for (std::size_t r = 0; r < p; ++r) own = std::max(own, next[r] == lists[r]->size() ? clock[r] - first[r] : kNever);
  return own;
}

// Calls visit for all combinations of one list per rank; the first rank's forwards go by number, without loss of
// generality.
void for_all(int ranks, const std::vector<List>& lists,
             const std::function<void(const std::vector<const List*>&)>& visit) {
  std::vector<const List*> chosen;
  const auto forwards_by_number = [](const List& list) {
    int last = -1;
    for (const Pass& pass : list) {
      if (pass.op == 'F' && pass.microbatch < last) return false;
      if (pass.op == 'F') last = pass.microbatch;
    }
    return true;
  };
  const std::function<void()> extend = [&] {
    if (static_cast<int>(chosen.size()) == ranks) return visit(chosen);
    for (const List& list : lists) {
      if (chosen.empty() && !forwards_by_number(list)) continue;
      chosen.push_back(&list);
      extend();
      chosen.pop_back();
    }
  };
  extend();
}

// The shortest own span of all possible schedules, by memory limit.
class Shortest {
 public:
  explicit Shortest(double w_share) : w_share_(w_share) {
    for (double limit = 1; limit <= 4; limit += 0.25) limits_.push_back(limit);
    own_.assign(limits_.size(), std::numeric_limits<double>::infinity());
  }
  void add(const std::vector<const List*>& lists, double own) {
    double peak = 0;
    for (const List* list : lists) peak = std::max(peak, peak_of(*list, w_share_));
    for (std::size_t i = 0; i < limits_.size(); ++i) {
      if (peak <= limits_[i] + kSame) own_[i] = std::min(own_[i], own);
    }
  }
  // Returns for how many of the limits the bound is met, and the number of limits.
  int hold_against(const PipelineShape& shape, const Times& times) const {
    int met = 0;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
      const MemoryLimit memory{limits_[i], w_share_};
      const double bound = least_own_span(shape, times, memory);
      EXPECT_LE(bound, own_[i] + kSame) << shape.ranks << " ranks, " << shape.microbatches << " microbatches, limit "
                                        << limits_[i] << ", share " << w_share_ << ", f " << times.forward;
      met += bound > own_[i] - kSame ? 1 : 0;
      // The schedule that the search finds is optimal.
      const Schedule found = zb_search({shape, times, memory});
      EXPECT_NEAR(spans_of(found, times, play(found, times)).own, own_[i], kSame)
          << shape.ranks << " ranks, " << shape.microbatches << " microbatches, limit " << limits_[i];
    }
    return met;
  }
  int size() const { return static_cast<int>(limits_.size()); }

 private:
  double w_share_;
  std::vector<double> limits_;
  std::vector<double> own_;
};

struct Tiny {
  std::int32_t ranks;
  std::int32_t microbatches;
  bool in_order;
};

TEST(OwnSpanBound, HoldsForEveryScheduleThereIs) {
  int met = 0;
  int all = 0;
  for (const Tiny& tiny : {Tiny{1, 3, false}, Tiny{2, 2, false}, Tiny{3, 2, false}, Tiny{2, 3, false}, Tiny{3, 3, true},
                           Tiny{2, 4, true}}) {
    const std::vector<List> lists = all_lists(tiny.microbatches, tiny.in_order);
    for (const Times& times : kTimes) {
      std::vector<Shortest> shortest(kShares.begin(), kShares.end());
      for_all(tiny.ranks, lists, [&](const std::vector<const List*>& chosen) {
        const double own = own_span(chosen, times);
        for (Shortest& one : shortest) one.add(chosen, own);
      });
      for (const Shortest& one : shortest) {
        met += one.hold_against({tiny.ranks, tiny.microbatches, 1}, times);
        all += one.size();
      }
    }
  }
  EXPECT_GT(met, all / 2) << "of " << all << ": a bound that is rarely met says little";
}

// Each schedule within its own memory peak; a full backward is I and W, one after the other.
TEST(OwnSpanBound, HoldsForEveryScheduleOfTheCatalogue) {
  int held = 0;
  for_every_schedule(6, [&](const CatalogueEntry& entry, const PipelineShape& shape, const Schedule& schedule) {
    if (schedule.chunks() != 1 || schedule.num_pipes() != 1 || schedule.slices() != 1) return;
    if (entry.name == "bpipe") return;  // holds on other ranks
    for (const Times& times : kTimes) {
      for (const double w_share : kShares) {
        double peak = 0;
        for (const RankCounts& rank : count_ranks(schedule, w_share)) {
          peak = std::max(peak, rank.peak.until_weight_gradient);
        }
        EXPECT_LE(least_own_span(shape, times, {peak, w_share}),
                  spans_of(schedule, times, play(schedule, times)).own + kSame)
            << entry.name << " p " << shape.ranks << " m " << shape.microbatches << " share " << w_share;
        ++held;
      }
    }
  });
  EXPECT_GT(held, 1000);
}

TEST(OwnSpanBound, HoldsForWhatTheSearchFinds) {
  core::Random random(11);
  const auto time = [&] { return 0.25 + static_cast<double>(random.below(16)) / 4; };
  for (int k = 0; k < 300; ++k) {
    const PipelineShape shape{static_cast<std::int32_t>(1 + random.below(10)),
                              static_cast<std::int32_t>(1 + random.below(30)), 1};
    const Times times{time(), time(), time(), random.below(2) == 0 ? 0 : time() / 8};
    const MemoryLimit memory{1 + static_cast<double>(random.below(64)) / 4, static_cast<double>(random.below(5)) / 4};
    const Schedule found = zb_search({shape, times, memory});
    EXPECT_GE(spans_of(found, times, play(found, times)).own, least_own_span(shape, times, memory) - kSame)
        << shape.ranks << " " << shape.microbatches << " limit " << memory.most << " share " << memory.w_share;
  }
}

// More memory, or a smaller w_share, never increases the bound.
TEST(OwnSpanBound, FallsWithMemory) {
  for (const Times& times : kTimes) {
    double before = std::numeric_limits<double>::infinity();
    for (double limit = 1; limit <= 20; limit += 0.5) {
      const double bound = least_own_span({8, 24, 1}, times, {limit, 0.5});
      EXPECT_LE(bound, before + kSame) << limit;
      EXPECT_LE(bound, least_own_span({8, 24, 1}, times, {limit, 1}) + kSame) << limit;
      before = bound;
    }
  }
}

// With room for one microbatch only, it makes its round trip before the next one starts.
TEST(OwnSpanBound, OfOneMicrobatchAtATimeIsTheirWays) {
  EXPECT_NEAR(least_own_span({4, 3, 1}, {1, 1.25, 0.5, 0.125}, {1, 1}), 3 * (4 * 2.25 + 6 * 0.125 + 0.5), kSame);
  EXPECT_NEAR(least_own_span({4, 3, 1}, {1, 1.25, 0.5, 0.125}, {1, 0}), 3 * (4 * 2.25 + 6 * 0.125) + 0.5, kSame);
}

}  // namespace
}  // namespace lockstep::schedules
