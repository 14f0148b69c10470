#include "schedules/passes/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace lockstep::schedules {
namespace {

void add_block(std::vector<Parameter>& to, std::int64_t in, std::int64_t out, std::int64_t stride) {
  to.insert(to.end(), {{out * in * 9}, {out}, {out}, {out * out * 9}, {out}, {out}});
  if (stride != 1) to.insert(to.end(), {{out * in}, {out}, {out}});
}

// In the order of parameters(): He et al. 2015 (arXiv:1512.03385), table 1, with batch normalisation.
std::vector<Parameter> resnet18() {
  std::vector<Parameter> parameters{{9408}, {64}, {64}};
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    add_block(parameters, in, out, out / in);
    add_block(parameters, out, out, 1);
    in = out;
  }
  parameters.insert(parameters.end(), {{512'000}, {1000}});
  return parameters;
}

// Bucket sizes that PyTorch reports for ResNet-18 with its default cap (pytorch/pytorch issue #48880): 2.05, 28.85 and
// 15.85 MB.
TEST(Buckets, OfResNet18AreThoseOfPyTorch) {
  const auto buckets = gradient_buckets(resnet18(), ddp_rules());
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_NEAR(static_cast<double>(buckets[0].bytes) / 1e6, 2.05, 0.005);
  EXPECT_NEAR(static_cast<double>(buckets[1].bytes) / 1e6, 28.85, 0.005);
  EXPECT_NEAR(static_cast<double>(buckets[2].bytes) / 1e6, 15.85, 0.01);
  EXPECT_EQ(buckets[0].bytes + buckets[1].bytes + buckets[2].bytes, 4 * 11'689'512);
}

// torch 2.2: _compute_bucket_assignment_by_size of three Linear(512, 512), in the order given, limits 1 MiB and 1 MiB:
// [[0], [1, 2], [3, 4], [5]].
TEST(Buckets, AreFullOnceTheyReachTheirLimit) {
  std::vector<Parameter> backwards;
  for (const std::int64_t elements : {512, 512 * 512, 512, 512 * 512, 512, 512 * 512}) backwards.push_back({elements});
  const auto buckets = gradient_buckets(backwards, ddp_rules(1 << 20));
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].parameters, std::vector<std::size_t>({5}));
  EXPECT_EQ(buckets[1].parameters, std::vector<std::size_t>({4, 3}));
  EXPECT_EQ(buckets[2].parameters, std::vector<std::size_t>({2, 1}));
  EXPECT_EQ(buckets[3].parameters, std::vector<std::size_t>({0}));
}

TEST(Buckets, OneBucketHasNoLimit) {
  const std::vector<Parameter> parameters(100, {10'000'000, 4});
  ASSERT_EQ(gradient_buckets(parameters, one_bucket()).size(), 1U);
  EXPECT_EQ(gradient_buckets(parameters, one_bucket()).front().bytes, 4'000'000'000);
}

TEST(Buckets, KindsOfGradientsDoNotMix) {
  const std::vector<Parameter> parameters{
      {300'000, 4, 0}, {300'000, 2, 0}, {10, 4, 1, GroupKind::expert_data}, {300'000, 4, 1}, {300'000, 2, 1}};
  const auto buckets = gradient_buckets(parameters, ddp_rules(1 << 20));
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].parameters, std::vector<std::size_t>({4, 1}));  // the first to begin, though not full
  EXPECT_EQ(buckets[0].part, 0);
  EXPECT_EQ(buckets[1].parameters, std::vector<std::size_t>({3}));  // 1.2 MB
  EXPECT_EQ(buckets[1].part, 1);
  EXPECT_EQ(buckets[2].group, GroupKind::expert_data);
  EXPECT_EQ(buckets[3].parameters, std::vector<std::size_t>({0}));
}

TEST(Buckets, HoldEveryParameterOnceAndOnlyTheLastIsSmall) {
  core::Random random(11);
  for (int k = 0; k < 200; ++k) {
    std::vector<Parameter> parameters;
    const auto count = 1 + random.below(60);
    for (std::uint64_t i = 0; i < count; ++i) {
      parameters.push_back({static_cast<std::int64_t>(1 + random.below(4'000'000)), 4});
    }
    const auto cap = static_cast<std::int64_t>(1 + random.below(std::uint64_t{30} << 20));
    const auto buckets = gradient_buckets(parameters, ddp_rules(cap));
    std::vector<std::size_t> seen;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const std::int64_t limit = b == 0 ? kDdpFirstBucketBytes : cap;
      const std::int64_t last = 4 * parameters[buckets[b].parameters.back()].elements;
      EXPECT_LT(buckets[b].bytes - last, limit);
      EXPECT_TRUE(b + 1 == buckets.size() || buckets[b].bytes >= limit);
      seen.insert(seen.end(), buckets[b].parameters.rbegin(), buckets[b].parameters.rend());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::size_t> all(parameters.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    EXPECT_EQ(seen, all);
  }
}

}  // namespace
}  // namespace lockstep::schedules
