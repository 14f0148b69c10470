#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Embedding, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(embedding_test_cases()), "");
}

// Looks ids up in a table of two columns whose first row belongs to id `first_id`.
std::vector<float> looked_up(const std::vector<std::int32_t>& ids, const std::vector<float>& table,
                             std::int64_t first_id) {
  std::vector<float> y(2 * ids.size(), -1);
  run_on_cpu(EmbeddingForward{.tokens = static_cast<std::int64_t>(ids.size()),
                              .rows = static_cast<std::int64_t>(table.size() / 2),
                              .columns = 2,
                              .first_id = first_id},
             {ids.data(), table.data(), y.data()});
  return y;
}

TEST(Embedding, IdsOutsideOfTheTableGiveZeros) {
  const std::vector<std::int32_t> ids{
      -1, 0, 2, 3, 5, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
  EXPECT_EQ(looked_up(ids, {1, 2, 3, 4, 5, 6}, 0), (std::vector<float>{0, 0, 1, 2, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(looked_up(ids, {1, 2, 3, 4, 5, 6}, 3), (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 2, 5, 6, 0, 0, 0, 0}));
}

// The outputs of all shards of a vocabulary that is not divisible by their number add up to the whole table's output.
TEST(Embedding, ShardsAddUp) {
  const std::vector<std::int32_t> ids{0, 4, 2, 3, 1, 4};
  const std::vector<float> table{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<float> low = looked_up(ids, {1, 2, 3, 4, 5, 6}, 0);
  const std::vector<float> high = looked_up(ids, {7, 8, 9, 10}, 3);
  std::vector<float> sum(low.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = low[i] + high[i];
  EXPECT_EQ(sum, looked_up(ids, table, 0));
}

TEST(Embedding, GradientsAreAddedInTheTokensOrder) {
  const std::vector<std::int32_t> ids{1, 1, 1, 7};
  // In f32, (1 + 2^-24) + 2^-24 is 1, but 1 + (2^-24 + 2^-24) is not; the last token is in no row.
  const std::vector<float> dy{1, 0x1p-24F, 0x1p-24F, 5};
  std::vector<float> dtable{9, 0};
  run_on_cpu(EmbeddingBackward{.tokens = 4, .rows = 2, .columns = 1}, {ids.data(), dy.data(), dtable.data()}, 2);
  EXPECT_EQ(dtable, (std::vector<float>{9, 1}));
}

TEST(Embedding, NanAndInfinityStayInTheirRow) {
  const std::vector<float> y = looked_up({0, 1, 2}, {1, 2, kInfinity, std::nanf(""), 5, 6}, 0);
  EXPECT_EQ(y[1], 2);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], 5);
}

TEST(Embedding, ReferenceOfTheBackwardIsTheDerivative) {
  const CaseFacts facts{.shape = "N9_T3_V5_C4",
                        .dtype = core::DType::f64,
                        .draws = {{"ids", {.kind = Draw::Kind::index, .below = 6}},
                                  {"dtable", {.kind = Draw::Kind::zero}},
                                  {"dpositions", {.kind = Draw::Kind::zero}}}};
  const GradientCheck check{
      .forward = make_case(EmbeddingForward{.tokens = 9, .length = 3, .rows = 5, .columns = 4}, facts),
      .backward = make_case(EmbeddingBackward{.tokens = 9, .length = 3, .rows = 5, .columns = 4}, facts),
      .outputs = {{"y", "dy"}},
      .inputs = {{"table", "dtable"}, {"positions", "dpositions"}}};
  EXPECT_EQ(gradient_errors(check), "");
}

}  // namespace
}  // namespace lockstep::kernels
