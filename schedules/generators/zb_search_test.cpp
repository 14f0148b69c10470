#include "schedules/generators/zb_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.h"
#include "schedules/check.h"
#include "schedules/count.h"
#include "schedules/generators/catalogue.h"

namespace lockstep::schedules {
namespace {

Spans spans(const Schedule& schedule, const Times& times) {
  return spans_of(schedule, times, play(schedule, times));
}

double most_held(const Schedule& schedule, double w_share) {
  double most = 0;
  for (const RankCounts& rank : count_ranks(schedule, w_share)) most = std::max(most, rank.peak.until_weight_gradient);
  return most;
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
    const Schedule made = zb_search({{p, m, 1}, times, {limit, w_share}});
    EXPECT_NO_THROW(check_or_throw(made)) << p << " " << m << " " << limit << " " << w_share;
    EXPECT_LE(most_held(made, w_share), limit + 1e-9) << p << " " << m;
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

}  // namespace
}  // namespace lockstep::schedules
