#include "kernels/attention_merge/attention_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

In view(const std::vector<float>& values, std::size_t first, std::size_t count) {
  return {values.data() + first, core::DType::f32, static_cast<std::int64_t>(count)};
}
InOut view(std::vector<float>& values) {
  return {values.data(), core::DType::f32, static_cast<std::int64_t>(values.size())};
}

// Computes attention of one head of `columns` over some of the keys.
struct Attended {
  std::vector<float> o;
  std::vector<float> lse;
};
Attended attended(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                  std::size_t columns, std::size_t first, std::size_t keys, const Context& where) {
  const std::size_t queries = q.size() / columns;
  Attended result{std::vector<float>(q.size()), std::vector<float>(queries)};
  AttentionForward forward{.shape = {.batch = 1,
                                     .heads = 1,
                                     .queries = static_cast<std::int64_t>(queries),
                                     .keys = static_cast<std::int64_t>(keys),
                                     .head_columns = static_cast<std::int64_t>(columns),
                                     .causal = false}};
  forward.q = view(q, 0, q.size());
  forward.k = view(k, first * columns, keys * columns);
  forward.v = view(v, first * columns, keys * columns);
  forward.o = view(result.o).out();
  forward.lse = view(result.lse).out();
  run(forward, where);
  return result;
}

void merge(Attended& whole, const Attended& part, std::size_t columns, const Context& where) {
  AttentionMerge args{.batch = 1,
                      .heads = 1,
                      .queries = static_cast<std::int64_t>(whole.lse.size()),
                      .head_columns = static_cast<std::int64_t>(columns)};
  args.o = view(whole.o);
  args.lse = view(whole.lse);
  args.part_o = view(part.o, 0, part.o.size());
  args.part_lse = view(part.lse, 0, part.lse.size());
  run(args, where);
}

TEST(AttentionMerge, CasesHoldOnTheCpu) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& kernel_case : attention_merge_test_cases()) EXPECT_EQ(cpu_errors(kernel_case), "") << target;
  });
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
  ThreadPool pool(1);
  const Context where(pool);
  const Attended whole = attended(q, k, v, kColumns, 0, kKeys, where);
  for (const bool reversed : {false, true}) {
    Attended merged{std::vector<float>(q.size(), kNaN), std::vector<float>(9, -kInf)};
    for (std::size_t part = 0; part < 4; ++part) {
      merge(merged, attended(q, k, v, kColumns, (reversed ? 3 - part : part) * 10, 10, where), kColumns, where);
    }
    for (std::size_t i = 0; i < whole.o.size(); ++i) EXPECT_NEAR(merged.o[i], whole.o[i], 1e-5F);
    for (std::size_t i = 0; i < whole.lse.size(); ++i) EXPECT_NEAR(merged.lse[i], whole.lse[i], 1e-5F);
  }
}

TEST(AttentionMerge, PartsWithoutKeysAndScoresBeyondAllRangesAreSafe) {
  ThreadPool pool(1);
  const Context where(pool);
  // lse of the whole and of the part: one has no keys, neither has, far apart, huge, not a number.
  Attended whole{{1, kNaN, kNaN, 1, 1, 1, 1}, {2, -kInf, -kInf, 300, -3e38F, 3e38F, kNaN}};
  const Attended part{{kNaN, 5, kNaN, 7, 7, 7, 7}, {-kInf, 3, -kInf, -300, 3e38F, 3e38F, 1}};
  merge(whole, part, 1, where);
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
