// Token slices: how sequences are cut, and the time and memory of schedules of slices.
#include "schedules/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

// The smallest possible largest sum, found by trying all partitions.
double best_of_all(const std::vector<double>& costs, std::size_t begin, std::int32_t parts) {
  if (parts == 1) return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(begin), costs.end(), 0.0);
  double best = 1e300;
  double first = 0;
  for (std::size_t end = begin + 1; end + static_cast<std::size_t>(parts) - 1 <= costs.size(); ++end) {
    first += costs[end - 1];
    best = std::min(best, std::max(first, best_of_all(costs, end, parts - 1)));
  }
  return best;
}

double largest_part(const std::vector<double>& costs, const std::vector<std::int32_t>& counts) {
  double largest = 0;
  auto at = costs.begin();
  for (const std::int32_t count : counts) {
    EXPECT_GE(count, 1);
    largest = std::max(largest, std::accumulate(at, at + count, 0.0));
    at += count;
  }
  EXPECT_EQ(at, costs.end());
  return largest;
}

TEST(Partition, NoOtherCutHasASmallerLargestPart) {
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  for (std::size_t items = 1; items <= 8; ++items) {
    for (std::int32_t parts = 1; parts <= static_cast<std::int32_t>(items); ++parts) {
      for (int round = 0; round < 6; ++round) {
        std::vector<double> costs;
        for (std::size_t i = 0; i < items; ++i) {
          costs.push_back(static_cast<double>(random() % 6));
        }
        EXPECT_DOUBLE_EQ(largest_part(costs, balanced_parts(costs, parts)), best_of_all(costs, 0, parts))
            << "seed " << kSeed << ", " << items << " items, " << parts << " parts";
      }
    }
  }
}

TEST(Partition, AmongEqualsTheMostEvenIsTaken) {
  const std::vector<double> costs{5, 1, 1, 1, 1};
  EXPECT_EQ(balanced_parts(costs, 3), (std::vector<std::int32_t>{1, 2, 2}));
}

TEST(Slices, BalancedOnesTakeEqualTimesAndBecomeShorter) {
  for (const double attention : {0.0, 0.25, 0.5, 1.0}) {
    for (const std::int32_t count : {1, 2, 4, 8}) {
      const auto lengths = balanced_slices(4096, count, attention, slice_block(4096, count));
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 4096);
      EXPECT_TRUE(std::is_sorted(lengths.rbegin(), lengths.rend())) << attention << " " << count;
      for (std::int32_t slice = 0; slice < count; ++slice) {
        EXPECT_NEAR(work_share(slice_share(lengths, slice), attention), 1.0 / count, 0.035 / count * 2)
            << attention << " " << count << " slice " << slice;
      }
    }
  }
  EXPECT_EQ(balanced_slices(4096, 4, 0, 64), even_slices(4096, 4));
  EXPECT_EQ(even_slices(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  // All work is attention: boundaries at the square roots of the shares.
  EXPECT_EQ(balanced_slices(100, 4, 1), (std::vector<std::int64_t>{50, 21, 16, 13}));
}

TEST(Slices, WorkOfAllSlicesIsThatOfTheWhole) {
  const std::vector<std::int64_t> lengths{7, 1, 3, 5};
  double work = 0;
  for (std::int32_t slice = 0; slice < 4; ++slice) work += work_share(slice_share(lengths, slice), 0.4);
  EXPECT_NEAR(work, 1, 1e-12);
}

Schedule sliced(std::string_view name, std::int32_t p, std::int32_t m, std::vector<std::int64_t> lengths,
                std::int32_t v = 1) {
  Schedule schedule = make_schedule(name, {p, m, v, std::move(lengths)});
  EXPECT_NO_THROW(check_or_throw(schedule));
  return schedule;
}

double makespan(const Schedule& schedule, const Times& times) {
  return spans(schedule, times).makespan;
}

// Li et al. 2021, section 3.3: the sum of the slices plus the longest one for each stage but one, for any lengths and
// any attention.
TEST(Slices, TeraPipeTakesWhatItsFormulaPredicts) {
  for (const double attention : {0.0, 0.3}) {
    const Times times{1, 1.5, 0.75, 0, attention};
    for (const auto& lengths : {std::vector<std::int64_t>{3, 2, 1}, {1, 5}, {1, 1, 1, 1}, {2, 1, 4}}) {
      for (std::int32_t p = 1; p <= 6; ++p) {
        for (std::int32_t m = 1; m <= 4; ++m) {
          const auto form = entry_named("terapipe").closed_form({p, m, 1, lengths}, times);
          EXPECT_NEAR(makespan(sliced("terapipe", p, m, lengths), times), form->cost, 1e-9);
        }
      }
    }
  }
}

// The first rank holds 1 + (p - 1) / k microbatches where 1F1B holds p; each later rank holds one slice less.
TEST(Slices, Seq1F1BHoldsFewerMicrobatches) {
  for (std::int32_t p = 1; p <= 8; ++p) {
    for (std::int32_t k = 1; k <= 6; ++k) {
      for (const std::int32_t m : {1, 2, p, 2 * p + 1}) {
        const auto counts = count_ranks(sliced("seq1f1b", p, m, even_slices(k, k)));
        for (std::int32_t r = 0; r < p; ++r) {
          EXPECT_DOUBLE_EQ(counts[static_cast<std::size_t>(r)].peak.until_weight_gradient,
                           static_cast<double>(std::min(m * k, p - 1 - r + k)) / k)
              << p << " " << k << " " << m;
        }
        EXPECT_DOUBLE_EQ(count_ranks(sliced("terapipe", p, m, even_slices(k, k)))[0].peak.until_weight_gradient, m);
      }
    }
  }
}

// With attention, equal lengths wait for the longest slice; equal times do not, up to a block of tokens.
TEST(Slices, BalancedSlicesShortenTheStep) {
  const Times times{1, 1, 1, 0, 0.5};
  const double effective = 0.5 * 2 / 3;  // weight gradients have no attention
  for (const std::int32_t p : {4, 8}) {
    for (const std::int32_t k : {2, 4}) {
      const std::int32_t m = 2 * p;
      const auto balanced = balanced_slices(8192, k, effective, 16);
      const double best = 3 * (m + (p - 1.0) / k);
      const double even_ms = makespan(sliced("seq1f1b", p, m, even_slices(8192, k)), times);
      const double balanced_ms = makespan(sliced("seq1f1b", p, m, balanced), times);
      EXPECT_GT(even_ms, 1.02 * best) << p << " " << k;
      EXPECT_LT(balanced_ms, even_ms);
      EXPECT_LT(makespan(sliced("terapipe", p, m, balanced), times),
                makespan(sliced("terapipe", p, m, even_slices(8192, k)), times));
    }
  }
}

TEST(Slices, OneSliceIsTheScheduleOfWholeMicrobatches) {
  EXPECT_EQ(sliced("seq1f1b", 4, 8, {}).of_rank, make_schedule("1f1b", {4, 8, 1}).of_rank);
  EXPECT_EQ(sliced("terapipe", 4, 8, {}).of_rank, make_schedule("gpipe", {4, 8, 1}).of_rank);
  EXPECT_EQ(sliced("seq1f1b_i", 4, 8, {}, 2).of_rank, make_schedule("interleaved", {4, 8, 2}).of_rank);
}

TEST(Slices, TextHasMicrobatchAndSlice) {
  const std::string text = "0F0.0,0F0.1,0B0.1,0F1.0,0B0.0,0F1.1,0B1.1,0B1.0\n";
  const Schedule read = parse_csv(text, "s.csv");
  EXPECT_EQ(read.num_microbatches, 4);
  EXPECT_EQ(read.slices(), 2);
  EXPECT_EQ(read.of_rank[0][5], (Action{Op::forward, 0, 3}));
  EXPECT_EQ(to_csv(read), text);
  EXPECT_EQ(problem_of(text), "");
  EXPECT_EQ(to_csv(sliced("seq1f1b", 2, 1, {1, 1})), "0F0.0,0F0.1,0B0.1,0B0.0\n1F0.0,1F0.1,1B0.1,1B0.0\n");
  EXPECT_THROW(parse_csv("0F0.0,0F0,0B0\n", "s.csv"), core::Error);
  EXPECT_THROW(parse_csv("0F0.,0B0.\n", "s.csv"), core::Error);
  EXPECT_THROW(parse_csv("0F0.x\n", "s.csv"), core::Error);
  EXPECT_THROW(parse_csv("0F0.70000\n", "s.csv"), core::Error);
}

TEST(Slices, OrderWithinAStageIsChecked) {
  EXPECT_EQ(problem_of("0F0.1,0F0.0,0B0.1,0B0.0\n"), "0F0.1 comes before 0F0.0, whose keys and values it needs");
  EXPECT_EQ(problem_of("0F0.0,0F0.1,0B0.0,0B0.1\n"),
            "0B0.0 comes before the backward of the next slice, which adds to its gradients of keys and values");
  EXPECT_EQ(problem_of("0F0.0,0F0.1,0B0.1\n"), "no backward of slice 0 of microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0.0,0F0.1,0I0.1,0I0.0,0W0.0,0W0.1\n"), "");  // weights in any order
}

}  // namespace
}  // namespace lockstep::schedules
