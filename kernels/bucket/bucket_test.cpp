#include "kernels/bucket/bucket.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;

TEST(Bucket, CasesHoldOnTheCpu) {
  for (const KernelCase& kernel_case : bucket_test_cases()) EXPECT_EQ(cpu_errors(kernel_case), "");
}

TEST(Bucket, CasesHoldOnEachInstructionSet) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& kernel_case : bucket_test_cases()) {
      if (kernel_case.operands.size() >= 10) continue;
      EXPECT_EQ(cpu_errors(kernel_case), "") << target;
    }
  });
}

// Three pieces of bf16, a bucket of f32, and memory for the unpacked pieces.
struct Buffers {
  std::vector<std::vector<core::BFloat16>> pieces{{{0x3f80}}, {{0x4000}, {0xc040}}, {{0x7fc0}, {0xff80}, {0x8000}}};
  std::vector<float> bucket = std::vector<float>(6);
  std::vector<std::vector<core::BFloat16>> back{std::vector<core::BFloat16>(1), std::vector<core::BFloat16>(2),
                                                std::vector<core::BFloat16>(3)};
};

PackBucket packing(Buffers& buffers) {
  PackBucket args{.counts = {1, 2, 3}};
  for (const auto& piece : buffers.pieces) {
    args.pieces.push_back({piece.data(), DType::bf16, static_cast<std::int64_t>(piece.size())});
  }
  args.bucket = {buffers.bucket.data(), DType::f32, 6};
  return args;
}

UnpackBucket unpacking(Buffers& buffers) {
  UnpackBucket args{.counts = {1, 2, 3}};
  for (auto& piece : buffers.back) {
    args.pieces.push_back({piece.data(), DType::bf16, static_cast<std::int64_t>(piece.size())});
  }
  args.bucket = {buffers.bucket.data(), DType::f32, 6};
  return args;
}

TEST(Bucket, OfAnotherDTypeThanItsPieces) {
  Buffers buffers;
  ThreadPool pool(2);
  run(packing(buffers), Context(pool));
  EXPECT_EQ(std::vector<float>(buffers.bucket.begin(), buffers.bucket.begin() + 3), (std::vector<float>{1, 2, -3}));
  EXPECT_NE(buffers.bucket[3], buffers.bucket[3]) << "NaN stays";
  run(unpacking(buffers), Context(pool));
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < k + 1; ++i) EXPECT_EQ(buffers.back[k][i].bits, buffers.pieces[k][i].bits) << k << i;
  }
}

TEST(Bucket, ScaleMultiplies) {
  Buffers buffers;
  ThreadPool pool(1);
  PackBucket args = packing(buffers);
  args.scale = 0.5F;
  run(args, Context(pool));
  EXPECT_EQ(buffers.bucket[2], -1.5F);
  UnpackBucket back = unpacking(buffers);
  back.scale = 4;
  run(back, Context(pool));
  EXPECT_EQ(buffers.back[1][1].bits, core::to_bfloat16(-6).bits);
}

TEST(Bucket, WithoutScaleBitsAreMoved) {
  const std::vector<std::uint32_t> signalling{0x7f800001u, 0xff923456u};
  std::vector<std::uint32_t> bucket(2);
  PackBucket args{.counts = {2}};
  args.pieces = {{signalling.data(), DType::f32, 2}};
  args.bucket = {bucket.data(), DType::f32, 2};
  ThreadPool pool(1);
  run(args, Context(pool));
  EXPECT_EQ(bucket, signalling);
}

// Buckets and pieces that are larger than the caches are written with non-temporal stores.
TEST(Bucket, LargeBucketsComeBackWhole) {
  const std::vector<std::int64_t> counts{1000003, 17, 1, 2000000, 127};
  for (float scale : {1.0F, 0.5F}) {
    PackBucket args{.scale = scale, .counts = counts};
    UnpackBucket back{.scale = 1 / scale, .counts = counts};
    std::vector<std::vector<float>> pieces;
    std::vector<std::vector<float>> returned;
    for (std::int64_t count : counts) {
      pieces.emplace_back(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < pieces.back().size(); ++i)
        pieces.back()[i] = static_cast<float>(i % 1009 + pieces.size());
      returned.emplace_back(static_cast<std::size_t>(count));
    }
    for (std::size_t k = 0; k < counts.size(); ++k) {
      args.pieces.push_back({pieces[k].data(), DType::f32, counts[k]});
      back.pieces.push_back({returned[k].data(), DType::f32, counts[k]});
    }
    std::vector<float> bucket(static_cast<std::size_t>(args.total()));
    args.bucket = {bucket.data(), DType::f32, args.total()};
    back.bucket = {bucket.data(), DType::f32, args.total()};
    ThreadPool pool(2);
    run(args, Context(pool));
    EXPECT_EQ(bucket[1000003], scale * pieces[1][0]);
    run(back, Context(pool));
    EXPECT_EQ(returned, pieces) << scale;
  }
}

TEST(Bucket, ShapedArgumentsHaveAViewForEachPiece) {
  const PackBucket args = shaped(PackBucket{.counts = {4, 5}}, DType::f16);
  ASSERT_EQ(args.pieces.size(), 2u);
  EXPECT_EQ(args.pieces[1].elems, 5);
  EXPECT_EQ(args.pieces[1].dtype, DType::f16);
  EXPECT_EQ(args.bucket.elems, 9);
}

TEST(Bucket, Refusals) {
  Buffers buffers;
  EXPECT_EQ(refusal(packing(buffers)), "");
  EXPECT_EQ(refusal(unpacking(buffers)), "");
  EXPECT_EQ(refusal(PackBucket{.counts = {}}), "pack_bucket: pieces is 0; allowed: at least 1");
  EXPECT_EQ(refusal(PackBucket{.counts = {1, 0}}), "pack_bucket: count of piece1 is 0; allowed: at least 1");
  PackBucket args = packing(buffers);
  args.pieces.pop_back();
  EXPECT_EQ(refusal(args), "pack_bucket: piece2 has 0 elements; its shape requires 3");
  args = packing(buffers);
  args.pieces.push_back({});
  EXPECT_EQ(refusal(args), "pack_bucket: 4 pieces are given; its shape requires 3");
  args = packing(buffers);
  args.pieces[1].dtype = DType::f16;
  EXPECT_EQ(refusal(args), "pack_bucket: piece1 is half; allowed: bfloat16");
  args = packing(buffers);
  args.bucket.elems = 7;
  EXPECT_EQ(refusal(args), "pack_bucket: bucket has 7 elements; its shape requires 6");
  UnpackBucket back = unpacking(buffers);
  back.pieces[2].data = buffers.back[1].data();
  EXPECT_EQ(refusal(back), "unpack_bucket: piece1 and piece2 overlap");
  back = unpacking(buffers);
  back.scale = -INFINITY;
  EXPECT_EQ(refusal(back), "unpack_bucket: scale is -inf; allowed: finite numbers");
}

}  // namespace
}  // namespace lockstep::kernels
