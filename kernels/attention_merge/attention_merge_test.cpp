#include "kernels/attention_merge/attention_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Computes attention of one head of `columns` over some of the keys.
struct Attended {
  std::vector<float> o;
  std::vector<float> lse;
};
Attended attended(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                  std::size_t columns, std::size_t first, std::size_t keys) {
  const std::size_t queries = q.size() / columns;
  Attended result{std::vector<float>(q.size()), std::vector<float>(queries)};
  const AttentionShape shape{.batch = 1,
                             .heads = 1,
                             .queries = static_cast<std::int64_t>(queries),
                             .keys = static_cast<std::int64_t>(keys),
                             .head_columns = static_cast<std::int64_t>(columns),
                             .causal = false};
  const std::size_t at = first * columns;
  run_on_cpu(AttentionForward{.shape = shape},
             {q.data(), k.data() + at, v.data() + at, result.o.data(), result.lse.data()});
  return result;
}

void merge(Attended& whole, const Attended& part, std::size_t columns) {
  const auto queries = static_cast<std::int64_t>(whole.lse.size());
  run_on_cpu(
      AttentionMerge{.batch = 1, .heads = 1, .queries = queries, .head_columns = static_cast<std::int64_t>(columns)},
      {whole.o.data(), whole.lse.data(), part.o.data(), part.lse.data()});
}

TEST(AttentionMerge, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(attention_merge_test_cases()), "");
}

TEST(AttentionMerge, PartsOfTheKeysGiveTheAttentionOverAllInAnyOrder) {
  constexpr std::size_t kColumns = 16;
  constexpr std::size_t kKeys = 40;
  std::mt19937 random(7);  // fixed, so that the test repeats
  std::normal_distribution<float> normal(0, 2);
  const auto drawn = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  };
  const std::vector<float> q = drawn(9 * kColumns);
  const std::vector<float> k = drawn(kKeys * kColumns);
  const std::vector<float> v = drawn(kKeys * kColumns);
  const Attended whole = attended(q, k, v, kColumns, 0, kKeys);
  for (const bool reversed : {false, true}) {
    Attended merged{std::vector<float>(q.size(), kNaN), std::vector<float>(9, -kInf)};
    for (std::size_t part = 0; part < 4; ++part) {
      merge(merged, attended(q, k, v, kColumns, (reversed ? 3 - part : part) * 10, 10), kColumns);
    }
    for (std::size_t i = 0; i < whole.o.size(); ++i) EXPECT_NEAR(merged.o[i], whole.o[i], 1e-5F);
    for (std::size_t i = 0; i < whole.lse.size(); ++i) EXPECT_NEAR(merged.lse[i], whole.lse[i], 1e-5F);
  }
}

TEST(AttentionMerge, PartsWithoutKeysAndScoresBeyondAllRangesAreSafe) {
  // lse of the whole and of the part: one has no keys, neither has, far apart, huge, not a number.
  Attended whole{{1, kNaN, kNaN, 1, 1, 1, 1}, {2, -kInf, -kInf, 300, -3e38F, 3e38F, kNaN}};
  const Attended part{{kNaN, 5, kNaN, 7, 7, 7, 7}, {-kInf, 3, -kInf, -300, 3e38F, 3e38F, 1}};
  merge(whole, part, 1);
  EXPECT_EQ(whole.o[0], 1);
  EXPECT_EQ(whole.lse[0], 2);
  EXPECT_EQ(whole.o[1], 5);
  EXPECT_EQ(whole.lse[1], 3);
  EXPECT_EQ(whole.lse[2], -kInf);
  EXPECT_EQ(whole.o[3], 1);
  EXPECT_EQ(whole.lse[3], 300);
  EXPECT_EQ(whole.o[4], 7);
  EXPECT_EQ(whole.o[5], 4);
  EXPECT_TRUE(std::isnan(whole.o[6]));
}

TEST(AttentionMerge, RefusesAStrideThatIsTooShort) {
  const AttentionMerge args{.batch = 1, .heads = 2, .queries = 8, .head_columns = 4, .lse_stride = 7};
  EXPECT_THROW(args.check_shape(), core::Error);
}

}  // namespace
}  // namespace lockstep::kernels
