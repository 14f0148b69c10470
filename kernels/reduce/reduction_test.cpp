#include "kernels/reduce/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;
using core::ReduceOp;

TEST(Reduction, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(reduction_test_cases(), 2000), "");
}

std::vector<float> reduced(ReduceOp op, const std::vector<std::vector<float>>& sources) {
  std::vector<float> result(sources[0].size());
  const auto count = static_cast<std::int64_t>(result.size());
  Reduction args{count, static_cast<std::int64_t>(sources.size()), DType::f32, op};
  for (const auto& source : sources) args.sources.push_back({source.data(), DType::f32, count});
  args.destination = {result.data(), DType::f32, count};
  ThreadPool pool(2);
  run(args, Context(pool));
  return result;
}

// At every position of a vector and of the tail.
TEST(Reduction, MaxAndMinKeepANaNOfTheFirstSourceAlone) {
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    const auto first = reduced(op, {std::vector<float>(83, NAN), std::vector<float>(83, 1)});
    const auto later = reduced(op, {std::vector<float>(83, 1), std::vector<float>(83, NAN)});
    for (std::size_t i = 0; i < 83; ++i) {
      EXPECT_TRUE(std::isnan(first[i])) << i;
      EXPECT_EQ(later[i], 1) << i;
    }
  }
}

TEST(Reduction, SumCarriesWhatIsNotFinite) {
  const std::vector<float> sum = reduced(ReduceOp::sum, {{1, INFINITY, INFINITY}, {NAN, 1, -INFINITY}});
  EXPECT_TRUE(std::isnan(sum[0]));
  EXPECT_EQ(sum[1], INFINITY);
  EXPECT_TRUE(std::isnan(sum[2]));
}

TEST(Reduction, DestinationMayBeTheFirstSource) {
  std::vector<float> a{1, 2, 3};
  const std::vector<float> b{10, 20, 30};
  Reduction args{3, 2, DType::f32};
  args.sources = {{a.data(), DType::f32, 3}, {b.data(), DType::f32, 3}};
  args.destination = {a.data(), DType::f32, 3};
  ThreadPool pool(1);
  run(args, Context(pool));
  EXPECT_EQ(a, (std::vector<float>{11, 22, 33}));
}

TEST(Reduction, Refusals) {
  std::vector<float> memory(64);
  Reduction good{8, 2, DType::f32};
  good.sources = {{memory.data(), DType::f32, 8}, {memory.data() + 8, DType::f32, 8}};
  good.destination = {memory.data() + 16, DType::f32, 8};
  EXPECT_EQ(refusal(good), "");
  const auto spoiled = [&](const auto& spoil) {
    Reduction args = good;
    spoil(args);
    return refusal(args);
  };
  EXPECT_EQ(spoiled([](auto& a) { a.count = 0; }), "reduction: count is 0; allowed: at least 1");
  EXPECT_EQ(spoiled([](auto& a) { a.num_sources = 0; }), "reduction: num_sources is 0; allowed: at least 1");
  EXPECT_EQ(spoiled([](auto& a) { a.num_sources = 1; }), "reduction: 2 sources are given; its shape requires 1");
  EXPECT_EQ(spoiled([](auto& a) { a.num_sources = 3; }), "reduction: source2 has 0 elements; its shape requires 8");
  EXPECT_EQ(spoiled([](auto& a) { a.average_over = -1; }), "reduction: average_over is -1; allowed: at least 0");
  EXPECT_EQ(spoiled([](auto& a) {
              a.average_over = 2;
              a.op = ReduceOp::max;
            }),
            "reduction: average_over is 2 with max; allowed: with sum and avg");
  EXPECT_EQ(spoiled([](auto& a) { a.sources[1].dtype = DType::i32; }), "reduction: source1 is int32; allowed: float");
  EXPECT_EQ(spoiled([&](auto& a) { a.destination.data = memory.data() + 8; }),
            "reduction: source1 and destination overlap");
}

}  // namespace
}  // namespace lockstep::kernels
