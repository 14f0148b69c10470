#include "bench/data_parallel/checks.h"
#include "bench/step/sent_counter.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "collectives/backends/mesh.h"
#include "core/random.h"
#include "parallel/compress/compress.h"

namespace lockstep::parallel_bench {
namespace {

using core::DType;
using workload::Compression;
using workload::CompressionWay;
using Vector = std::vector<float>;

TEST(GradientCheck, DifferingCountsBits) {
  const Vector wanted{1, -0.0F, 3};
  EXPECT_EQ(differing(wanted, wanted), 0);
  EXPECT_EQ(differing(Vector{1, 0.0F, std::nextafter(3.0F, 4.0F)}, wanted), 2);
}

SerialSum two_shares(const GradientWire& wire = {}) {
  SerialSum sum(std::array<std::int64_t, 2>{2, 1}, wire);
  sum.add(Vector{100, 1, 1e-3F});
  sum.add(Vector{28, -1, 1e-3F});
  return sum;
}

TEST(GradientCheck, SumsOfTwoAreRoundedOnce) {
  const SerialSum sum = two_shares();
  EXPECT_EQ(sum.compare(Vector{128, 0, 2e-3F}).beyond, 0);
  EXPECT_EQ(sum.compare(Vector{std::nextafter(128.0F, 0.0F), 0, 2e-3F}).beyond, 0);
  EXPECT_EQ(sum.compare(Vector{128 - 3 * 0x1p-17F, 0, 2e-3F}).beyond, 1);
  EXPECT_EQ(two_shares({DType::bf16}).compare(Vector{128.5F, 0, 2e-3F}).beyond, 0)
      << "narrow gradients may be off by more";
}

TEST(GradientCheck, WhatIsNotANumberIsBeyondEveryBound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Compression compression : {CompressionWay::none, CompressionWay::bf16, CompressionWay::int8}) {
    EXPECT_EQ(two_shares({DType::f32, compression}).compare(Vector{nan, 0, 2e-3F}).beyond, 1);
  }
}

// By hand, of two shares: 100 + 28 and 1 - 1 in a block, 1e-3 + 1e-3 in one of its own.
std::vector<double> bounds_of(const std::vector<Vector>& shares, const GradientWire& wire) {
  BucketSums sums(static_cast<std::int64_t>(shares.front().size()), wire);
  for (const Vector& share : shares) sums.add(share);
  return sums.bounds();
}

TEST(GradientBounds, OfTwoShares) {
  const std::vector<Vector> shares{{100, 1}, {28, -1}};
  const double u = 0x1p-8;
  const auto bf16 = bounds_of(shares, {DType::f32, CompressionWay::bf16});
  EXPECT_NEAR(bf16[0], u * 128 + u * (128 + u * 128), 1e-3 * bf16[0]);
  EXPECT_NEAR(bf16[1], u * 2 + u * (0 + u * 2), 1e-3 * bf16[1]);
  // Half a scale of 100 / 127, of 28 / 127, and of the sum, which may be larger by the previous errors.
  const auto int8 = bounds_of(shares, {DType::f32, CompressionWay::int8});
  const double codes = 0.5 * 128 / 127;
  EXPECT_NEAR(int8[0], codes + 0.5 * (128 + codes) / 127, 1e-3 * int8[0]);
  EXPECT_NEAR(int8[1], int8[0], 1e-3 * int8[0]) << "of the block";
}

// A share drops its second largest at most; 4 of 5 are kept where there is room for all that are large enough.
TEST(GradientBounds, OfTheLargestElements) {
  const std::vector<Vector> shares{{9, -5, 3, 1}, {2, 1, -7, 0}};
  const auto bounds = [&](const char* way) {
    return bounds_of(shares, {DType::f32, workload::parse_compression(way)})[0];
  };
  EXPECT_NEAR(bounds("topk:density=0.25"), 5 + 2, 1e-4);
  EXPECT_NEAR(bounds("topk:density=0.5"), 3 + 1, 1e-4);
  EXPECT_NEAR(bounds("threshold:at=4:density=0.5"), 4 + 4, 1e-4);
  EXPECT_NEAR(bounds("threshold:at=4:density=0.25"), 5 + 4, 1e-4) << "room for the larger one of the first share";
}

TEST(GradientCheck, TheErrorOfAllGradientsIsRelative) {
  SerialSum sum(std::array<std::int64_t, 1>{2}, {});
  sum.add(Vector{3, 4});
  EXPECT_EQ(sum.compare(Vector{3, 4}).relative_error, 0);
  EXPECT_DOUBLE_EQ(sum.compare(Vector{3, 3}).relative_error, 0.2);
}

// Normal numbers whose size differs from block to block, as gradients of layers do.
std::vector<Vector> random_shares(int ranks, std::int64_t elems) {
  std::vector<Vector> shares(static_cast<std::size_t>(ranks), Vector(static_cast<std::size_t>(elems)));
  for (std::size_t r = 0; r < shares.size(); ++r) {
    for (std::size_t i = 0; i < shares[r].size(); ++i) {
      const double uniform = static_cast<double>(core::hash64(r + 1, i) >> 11) * 0x1p-53 - 0.5;
      shares[r][i] = static_cast<float>(uniform * std::exp2(static_cast<double>(i / 300 % 7)));
    }
  }
  return shares;
}

struct Reduced {
  Vector sum;             // rank 0's
  double sent_bytes = 0;  // by a rank, the mean
  double least_bytes = 0;
};

// As a training step does it.
Reduced reduce(Compression compression, const std::vector<Vector>& shares, const std::string& algorithm) {
  Reduced reduced;
  std::vector<step_bench::SentCounter::Bytes> bytes(shares.size());
  backends::Channel all(shares.size());
  std::iota(all.begin(), all.end(), 0);
  backends::MeshOptions options;
  options.num_ranks = static_cast<int>(shares.size());
  const std::span<const backends::Channel> channels(&all, 1);
  backends::run_mesh(options, channels, [&](backends::MeshRank& plain) {
    step_bench::SentCounter counter(channels);
    const backends::MeshRank mesh = counter.counting(plain);
    const auto rank = static_cast<std::size_t>(mesh.messages.rank());
    parallel::Memory memory(mesh.device);
    kernels::ThreadPool pool(1);
    const kernels::Context where(pool);
    const auto elems = static_cast<std::int64_t>(shares[rank].size());
    const parallel::GradientReduction reduction{.compression = compression,
                                                .elems = elems,
                                                .in_place = true,
                                                .num_ranks = options.num_ranks,
                                                .rank = mesh.messages.rank(),
                                                .algorithm = algorithm};
    const auto prepare = [&](const collectives::Operation& operation, std::string_view name) {
      return mesh.prepare(0, operation, name);
    };
    const auto prepared = parallel::prepare_reduction(reduction, prepare, memory, where);
    const parallel::Tensor x = memory.make(parallel::MemoryKind::gradients, DType::f32, elems);
    std::memcpy(x.data(), shares[rank].data(), static_cast<std::size_t>(x.bytes()));
    prepared.collective->run(x.data(), x.data());
    bytes[rank] = counter.so_far();
    if (rank == 0) reduced.sum.assign(x.as<float>(), x.as<float>() + elems);
  });
  for (const step_bench::SentCounter::Bytes& of_rank : bytes) {
    reduced.sent_bytes += static_cast<double>(of_rank.sent) / static_cast<double>(bytes.size());
    reduced.least_bytes += of_rank.least / static_cast<double>(bytes.size());
  }
  return reduced;
}

SerialSum serial_sum_of(const std::vector<Vector>& shares, const GradientWire& wire) {
  SerialSum sum(std::array{static_cast<std::int64_t>(shares.front().size())}, wire);
  for (const Vector& share : shares) sum.add(share);
  return sum;
}

double exact_sum(const std::vector<Vector>& shares, std::size_t i) {
  double sum = 0;
  for (const Vector& share : shares) sum += double{share[i]};
  return sum;
}

// Results of collectives are within the bounds, and near them; each element just beyond its bound is seen, and no
// other.
TEST(GradientBounds, HoldWhatCollectivesGiveAndNotMuchMore) {
  for (const Compression compression : {CompressionWay::none, CompressionWay::bf16, CompressionWay::int8}) {
    for (const int ranks : {2, 3, 4}) {
      for (const std::string algorithm : {"auto", "ring", "halving_doubling"}) {
        const auto shares = random_shares(ranks, std::int64_t{4096} * ranks);
        const GradientWire wire{DType::f32, compression};
        const SerialSum serial = serial_sum_of(shares, wire);
        const SerialSum::Found found = serial.compare(reduce(compression, shares, algorithm).sum);
        EXPECT_EQ(found.beyond, 0) << text_of(compression) << ' ' << ranks << ' ' << algorithm;
        EXPECT_GT(found.most_of_bound, 0.25) << text_of(compression) << ' ' << ranks << ' ' << algorithm;
      }
    }
  }
}

TEST(GradientBounds, AnErrorJustBeyondIsSeenInTheMidstOfWhatCollectivesGive) {
  for (const Compression compression : {CompressionWay::bf16, CompressionWay::int8}) {
    const auto shares = random_shares(3, 3000);
    const GradientWire wire{DType::f32, compression};
    const SerialSum serial = serial_sum_of(shares, wire);
    const std::vector<double> bounds = bounds_of(shares, wire);
    Vector gradients = reduce(compression, shares, "auto").sum;
    std::int64_t planted = 0;
    for (std::size_t i = 7; i < gradients.size(); i += 100) {
      gradients[i] = static_cast<float>(exact_sum(shares, i) + 0.999 * bounds[i]);
      EXPECT_EQ(serial.compare(gradients).beyond, planted) << i;
      gradients[i] = static_cast<float>(exact_sum(shares, i) - 1.001 * bounds[i]);
      EXPECT_EQ(serial.compare(gradients).beyond, ++planted) << i;
    }
  }
}

TEST(SentCounter, CountsWhatTheFormulaSays) {
  for (const int ranks : {2, 3, 4}) {
    const std::int64_t elems = std::int64_t{768} * ranks;
    const auto shares = random_shares(ranks, elems);
    const double whole = 2.0 * static_cast<double>(elems) * (ranks - 1) / ranks;
    for (const Compression compression : {CompressionWay::none, CompressionWay::bf16, CompressionWay::int8}) {
      const auto formula = static_cast<double>(workload::wire_bytes(compression, elems, ranks));
      for (const std::string algorithm : {"ring", "two_shot"}) {
        const Reduced reduced = reduce(compression, shares, algorithm);
        EXPECT_DOUBLE_EQ(reduced.sent_bytes, formula) << text_of(compression) << ' ' << ranks << ' ' << algorithm;
        EXPECT_DOUBLE_EQ(reduced.least_bytes, formula) << text_of(compression) << ' ' << ranks << ' ' << algorithm;
      }
    }
    EXPECT_DOUBLE_EQ(reduce(CompressionWay::none, shares, "ring").sent_bytes, 4 * whole);
    EXPECT_DOUBLE_EQ(reduce(CompressionWay::bf16, shares, "ring").sent_bytes, 2 * whole);
    EXPECT_DOUBLE_EQ(reduce(CompressionWay::int8, shares, "ring").sent_bytes, whole * 65 / 64);
  }
  const Reduced doubling = reduce(CompressionWay::none, random_shares(4, 4096), "recursive_doubling");
  EXPECT_GT(doubling.sent_bytes, doubling.least_bytes) << "an algorithm that sends more";
}

}  // namespace
}  // namespace lockstep::parallel_bench
