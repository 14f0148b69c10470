#include "schedules/generators/zero_bubble.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "testing/trainer/steps.h"

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
      EXPECT_NEAR(spans(found, times).own, own_[i], kSame)
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
        for (Shortest& order : shortest) order.add(chosen, own);
      });
      for (const Shortest& order : shortest) {
        met += order.hold_against({tiny.ranks, tiny.microbatches, 1}, times);
        all += order.size();
      }
    }
  }
  EXPECT_GT(met, all / 2) << "of " << all << ": a bound that is rarely met means little";
}

// Each schedule within its own memory peak; a full backward is I, then W.
TEST(OwnSpanBound, HoldsForEveryScheduleOfTheCatalogue) {
  int held = 0;
  for_every_schedule(6, [&](const CatalogueEntry& entry, const PipelineShape& shape, const Schedule& schedule) {
    if (schedule.chunks() != 1 || schedule.num_pipes() != 1 || schedule.slices() != 1) return;
    if (entry.name == "bpipe") return;  // holds on other ranks
    for (const Times& times : kTimes) {
      for (const double w_share : kShares) {
        EXPECT_LE(least_own_span(shape, times, {most_held(schedule, w_share), w_share}),
                  spans(schedule, times).own + kSame)
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
    EXPECT_GE(spans(found, times).own, least_own_span(shape, times, memory) - kSame)
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

TEST(ZbSearch, StaysLegalAndInMemoryAtAnyTimes) {
  core::Random random(7);
  const auto time = [&] { return 0.25 + static_cast<double>(random.below(16)) / 4; };
  for (int k = 0; k < 300; ++k) {
    const auto p = static_cast<std::int32_t>(1 + random.below(8));
    const auto m = static_cast<std::int32_t>(1 + random.below(24));
    const double limit = 1 + static_cast<double>(random.below(4 * static_cast<std::uint64_t>(p))) / 2;
    const double w_share = static_cast<double>(random.below(5)) / 4;
    const Times times{time(), time(), time(), random.below(2) == 0 ? 0 : time() / 8};
    const Schedule schedule = zb_search({{p, m, 1}, times, {limit, w_share}});
    EXPECT_NO_THROW(check_or_throw(schedule)) << p << " " << m << " " << limit << " " << w_share;
    EXPECT_LE(most_held(schedule, w_share), limit + 1e-9) << p << " " << m;
  }
}

// With the memory of the hand-made schedules the search is as good as they are, for any message time.
TEST(ZbSearch, FindsWhatWasMadeByHand) {
  for (const Times& times : {Times{1, 1, 1}, Times{1, 1.25, 0.75}, Times{2, 2.5, 0.5}, Times{18.5, 18, 9.25},
                             Times{1, 1, 1, 0.1}, Times{1, 1.25, 0.75, 0.3}}) {
    for (std::int32_t p = 2; p <= 10; ++p) {
      for (std::int32_t m = 2 * p; m <= 4 * p; m += p) {
        const PipelineShape shape{p, m, 1};
        EXPECT_LE(spans(zb_search({shape, times, {static_cast<double>(p), 1}}), times).own,
                  spans(make_schedule("zb_h1", shape), times).own + 1e-9)
            << p << " " << m;
        EXPECT_LE(spans(zb_search({shape, times, {static_cast<double>(2 * p - 1), 1}}), times).own,
                  spans(make_schedule("zb_h2", shape), times).own + 1e-9)
            << p << " " << m;
      }
    }
  }
}

// Table 5 of Qi et al. 2023 (Zero Bubble Pipeline Parallelism, arXiv:2401.10241): bubble rates of the schedules that
// their search finds for ZB-1p and ZB-2p, from the times of table 9 and the models of table 3 (1,024 tokens per
// sequence).

struct Row {
  PipelineShape shape;
  Times times_ms;
  double hidden;
  double heads;
  double zb_1p;  // (cost - m (f + i + w)) / cost; cost: the largest own span
  double zb_2p;
};
constexpr std::array kRows{
    Row{{8, 24, 1}, {18.522, 18.086, 9.337, 0.601}, 2304, 24, 0.1585, 0.0433},
    Row{{8, 32, 1}, {18.513, 18.086, 9.331, 0.626}, 2304, 24, 0.1242, 0.0039},
    Row{{8, 64, 1}, {18.546, 18.097, 9.321, 0.762}, 2304, 24, 0.0674, 0.0026},
    Row{{8, 24, 1}, {29.718, 29.444, 19.927, 0.527}, 4096, 32, 0.1323, 0.0029},
    Row{{8, 32, 1}, {29.802, 29.428, 19.530, 0.577}, 4096, 32, 0.1045, 0.0022},
    Row{{8, 64, 1}, {29.935, 29.621, 19.388, 0.535}, 4096, 32, 0.0554, 0.0010},
    Row{{16, 48, 1}, {11.347, 11.248, 8.132, 0.377}, 5120, 40, 0.1397, 0.0066},
    Row{{16, 64, 1}, {11.307, 11.254, 8.101, 0.379}, 5120, 40, 0.1088, 0.0054},
    Row{{16, 128, 1}, {11.325, 11.308, 8.109, 0.378}, 5120, 40, 0.0576, 0.0028},
    Row{{32, 96, 1}, {10.419, 10.207, 7.715, 0.408}, 6144, 48, 0.1421, 0.0038},
    Row{{32, 128, 1}, {10.408, 10.204, 7.703, 0.408}, 6144, 48, 0.1106, 0.0029},
    Row{{32, 256, 1}, {10.402, 10.248, 7.698, 0.460}, 6144, 48, 0.0594, 0.0018},
};

// Table 1: a layer's weight gradients need 32 s b h bytes of the s b (34 h + 5 a s) that its forward kept.
double w_share_of(const Row& row) {
  constexpr double kTokens = 1024;
  return 32 * row.hidden / (34 * row.hidden + 5 * row.heads * kTokens);
}

struct Found {
  double bubble;
  double bound;
};

// The search with memory for `multiple` times p microbatches.
Found found(const Row& row, int multiple) {
  const MemoryLimit memory{static_cast<double>(multiple * row.shape.ranks), w_share_of(row)};
  const Schedule schedule = zb_search({row.shape, row.times_ms, memory});
  EXPECT_NO_THROW(check_or_throw(schedule));
  EXPECT_LE(most_held(schedule, memory.w_share), memory.most + 1e-9);
  const Spans played = spans(schedule, row.times_ms);
  const auto bubble = [&](double own) { return (own - played.work) / own; };
  return {bubble(played.own), bubble(least_own_span(row.shape, row.times_ms, memory))};
}

void print(const Row& row, int multiple, double published, const Found& found) {
  std::printf(
      "p %2d, m %3d, ZB-%dp: bubble of own span published %5.2f %%, found %6.3f %%, no schedule below %6.3f %%\n",
      row.shape.ranks, row.shape.microbatches, multiple, 100 * published, 100 * found.bubble, 100 * found.bound);
}

TEST(ZbPublished, ZB1pIsAsPublishedToItsFourDigits) {
  for (const Row& row : kRows) {
    const Found mine = found(row, 1);
    print(row, 1, row.zb_1p, mine);
    EXPECT_NEAR(mine.bubble, row.zb_1p, 0.5e-4 + 1e-9);
  }
}

TEST(ZbPublished, ZB2pIsNeverWorseThanPublished) {
  for (const Row& row : kRows) {
    const Found mine = found(row, 2);
    print(row, 2, row.zb_2p, mine);
    EXPECT_LE(mine.bubble, row.zb_2p + 0.5e-4);
  }
}

// All 24 are proved optimal by the bound.
TEST(ZbPublished, NoScheduleOfThatMemoryIsBetter) {
  for (const Row& row : kRows) {
    for (const int multiple : {1, 2}) {
      const Found mine = found(row, multiple);
      EXPECT_NEAR(mine.bubble, mine.bound, 1e-6) << row.shape.ranks << " " << row.shape.microbatches;
    }
  }
}

// The memory model matters: whole activations until W more than double the bubble.
TEST(ZbPublished, WholeActivationsUntilWAreMoreThanThePaperCounts) {
  const Row& row = kRows[0];
  const Schedule schedule = zb_search({row.shape, row.times_ms, {16, 1}});
  const Spans played = spans(schedule, row.times_ms);
  EXPECT_GT((played.own - played.work) / played.own, 2 * row.zb_2p);
}

}  // namespace
}  // namespace lockstep::schedules
