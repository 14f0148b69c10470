#include "parallel/compress/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/plan/count.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep::parallel {
namespace {

using Vector = std::vector<float>;

struct Case {
  Compression compression = Compression::none;
  int num_ranks = 2;
  std::int64_t elems = 0;
  core::ReduceOp op = core::ReduceOp::sum;
  bool in_place = false;
  std::string algorithm = "auto";
};

std::int64_t bytes_sent(const backends::Prepared& prepared, const collectives::Operation& operation) {
  const auto checked = plan::check(*prepared.plan);
  std::int64_t bytes = 0;
  for (const auto& rank : plan::count(*prepared.plan, checked.contents, operation).ranks) bytes += rank.bytes_sent;
  return bytes;
}

struct Outcome {
  std::vector<Vector> results;  // [rank]
  std::int64_t bytes = 0;       // sent by all ranks, counted in the plans
};

// `inputs`: [rank]
Outcome reduce(const Case& c, const std::vector<Vector>& inputs) {
  Outcome outcome;
  outcome.results.resize(inputs.size());
  backends::Channel all(inputs.size());
  std::iota(all.begin(), all.end(), 0);
  backends::MeshOptions options;
  options.num_ranks = c.num_ranks;
  backends::run_mesh(options, {&all, 1}, [&](backends::MeshRank& mesh) {
    const int rank = mesh.messages.rank();
    const auto r = static_cast<std::size_t>(rank);
    Memory memory(mesh.device);
    kernels::ThreadPool pool(1);
    const kernels::Context where(pool);
    const auto prepare = [&](const collectives::Operation& operation, std::string_view algorithm) {
      backends::Prepared prepared = mesh.prepare(0, operation, algorithm);
      if (rank == 0) outcome.bytes += bytes_sent(prepared, operation);
      return prepared;
    };
    const GradientReduction reduction{c.compression, c.elems, c.op, c.in_place, c.num_ranks, rank, c.algorithm};
    const backends::Prepared prepared = prepare_reduction(reduction, prepare, memory, where);
    const Tensor x = memory.make(MemoryKind::gradients, core::DType::f32, c.elems);
    const Tensor apart = memory.make(MemoryKind::gradients, core::DType::f32, c.elems);
    const Tensor& y = c.in_place ? x : apart;
    std::memcpy(x.data(), inputs[r].data(), static_cast<std::size_t>(x.bytes()));
    prepared.collective->run(x.data(), y.data());
    outcome.results[r].assign(y.as<float>(), y.as<float>() + c.elems);
  });
  return outcome;
}

// Normal numbers whose size differs from block to block, as gradients of layers do.
std::vector<Vector> random_inputs(int num_ranks, std::int64_t elems) {
  std::vector<Vector> inputs(static_cast<std::size_t>(num_ranks), Vector(static_cast<std::size_t>(elems)));
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    for (std::size_t i = 0; i < inputs[r].size(); ++i) {
      const std::uint64_t bits = core::hash64(r + 1, i);
      const double uniform = static_cast<double>(bits >> 11) * 0x1p-53 - 0.5;
      inputs[r][i] = static_cast<float>(uniform * std::exp2(static_cast<double>(i / 300 % 7)));
    }
  }
  return inputs;
}

bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Of element i over the ranks.
double exact_sum(const std::vector<Vector>& inputs, std::size_t i) {
  double sum = 0;
  for (const Vector& x : inputs) sum += x[i];
  return sum;
}
double sum_of_sizes(const std::vector<Vector>& inputs, std::size_t i) {
  double sum = 0;
  for (const Vector& x : inputs) sum += std::abs(x[i]);
  return sum;
}
std::size_t block_begin(std::size_t i) {
  return i / kCompressionBlock * kCompressionBlock;
}
double largest_of_block(std::size_t i, std::size_t elems, const auto& size_of) {
  double largest = 0;
  for (std::size_t k = block_begin(i); k < std::min(elems, block_begin(i) + kCompressionBlock); ++k) {
    largest = std::max(largest, size_of(k));
  }
  return largest;
}

// bf16 has 8 significant bits: a rounding is off by 2^-8 of the number at most. One rounding of each input and one of
// each partial sum that a pass leaves: of one where all inputs are added in a pass, of num_ranks - 1 around a ring. f32
// within a pass adds num_ranks 2^-24.
double bf16_bound(const std::vector<Vector>& inputs, std::size_t i, bool around_a_ring = false) {
  const auto ranks = static_cast<double>(inputs.size());
  const double roundings = around_a_ring ? ranks : 2;
  return sum_of_sizes(inputs, i) * (std::pow(1 + 0x1p-8, roundings) - 1 + ranks * 0x1p-23);
}

// Half a scale for each input and half one for the sum, a scale being the block's largest / 127. The code is rounded
// from a product in f32 that is off by 127 * 2^-23 = 2e-5 at most, and so are code * scale.
double int8_bound(const std::vector<Vector>& inputs, std::size_t i) {
  constexpr double kHalf = 0.5 + 5e-5;
  const std::size_t elems = inputs.front().size();
  double of_inputs = 0;
  for (const Vector& x : inputs) {
    of_inputs += kHalf * largest_of_block(i, elems, [&](std::size_t k) { return std::abs(double{x[k]}); }) / 127;
  }
  const double largest_sum = largest_of_block(i, elems, [&](std::size_t k) { return std::abs(exact_sum(inputs, k)); });
  const double of_sum = kHalf * (largest_sum + of_inputs) / 127;
  return of_inputs + of_sum + sum_of_sizes(inputs, i) * static_cast<double>(inputs.size()) * 0x1p-23;
}

void expect_within_bounds(const Case& c) {
  const auto inputs = random_inputs(c.num_ranks, c.elems);
  const Outcome outcome = reduce(c, inputs);
  const double divisor = c.op == core::ReduceOp::avg ? c.num_ranks : 1;
  double largest_share = 0;  // of the bound that is used up
  for (std::size_t i = 0; i < inputs.front().size(); ++i) {
    const double bound =
        c.compression == Compression::bf16 ? bf16_bound(inputs, i, c.algorithm == "ring") : int8_bound(inputs, i);
    const double error = std::abs(outcome.results[0][i] * divisor - exact_sum(inputs, i));
    ASSERT_LE(error, bound * (1 + 1e-6)) << name_of(c.compression) << ' ' << c.num_ranks << ' ' << c.elems << ' ' << i;
    largest_share = std::max(largest_share, error / bound);
  }
  if (c.elems >= 1000) {
    EXPECT_GT(largest_share, 0.2) << "has it been compressed at all?";
  }
  for (const Vector& y : outcome.results)
    EXPECT_TRUE(same_bits(y, outcome.results[0])) << c.num_ranks << ' ' << c.elems;
}

TEST(Compression, ErrorsAreWithinTheFormatsBoundsAndAllRanksGetTheSameBits) {
  for (Compression compression : {Compression::bf16, Compression::int8}) {
    for (int ranks : {2, 3, 4, 8}) {
      for (std::int64_t elems : {1, 255, 257, 1500, 40'001}) {
        expect_within_bounds({compression, ranks, elems});
      }
    }
    expect_within_bounds({.compression = compression, .num_ranks = 3, .elems = 30'000, .in_place = true});
    expect_within_bounds({.compression = compression, .num_ranks = 4, .elems = 5000, .op = core::ReduceOp::avg});
  }
  expect_within_bounds({.compression = Compression::bf16, .num_ranks = 4, .elems = 30'000, .algorithm = "ring"});
}

// Replicas that got unlike bits would drift apart. Of all algorithms only one_shot gives them, and auto never takes it
// for more than two ranks.
TEST(Compression, WithoutItAllRanksGetTheSameBitsToo) {
  for (int ranks : {2, 3, 4, 7}) {
    auto algorithms = algorithm_names(backends::find_backend("local"), collectives::Kind::all_reduce, ranks);
    algorithms.emplace_back("auto");
    for (const std::string& algorithm : algorithms) {
      if (algorithm == "one_shot") continue;
      for (std::int64_t elems : {5, 1500, 40'001}) {
        const Outcome outcome = reduce({.num_ranks = ranks, .elems = elems, .in_place = true, .algorithm = algorithm},
                                       random_inputs(ranks, elems));
        for (const Vector& y : outcome.results) {
          EXPECT_TRUE(same_bits(y, outcome.results[0])) << algorithm << ' ' << ranks << ' ' << elems;
        }
      }
    }
  }
}

TEST(Compression, WhatTheFormatHoldsIsExact) {
  // Integers up to 127, the largest in every block, the same on all ranks: scales are 1 and then num_ranks.
  for (int ranks : {1, 2, 3, 5}) {
    Vector x(3000);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i % kCompressionBlock == 7 ? 127.0F : static_cast<float>(static_cast<int>(i * 37 % 255) - 127);
    }
    const std::vector<Vector> inputs(static_cast<std::size_t>(ranks), x);
    const Outcome outcome = reduce({Compression::int8, ranks, 3000}, inputs);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(outcome.results.back()[i], static_cast<float>(ranks) * x[i]) << ranks << ' ' << i;
    }
    // bf16 holds integers up to 256.
    std::vector<Vector> small(static_cast<std::size_t>(ranks), Vector(3000));
    for (std::size_t r = 0; r < small.size(); ++r) {
      for (std::size_t i = 0; i < x.size(); ++i) small[r][i] = static_cast<float>(static_cast<int>((i + r) % 101) - 50);
    }
    const Outcome rounded = reduce({Compression::bf16, ranks, 3000}, small);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(rounded.results.back()[i], static_cast<float>(exact_sum(small, i))) << ranks << ' ' << i;
    }
  }
}

TEST(Compression, NaNAndInfinityStayVisible) {
  for (Compression compression : {Compression::bf16, Compression::int8}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto inputs = random_inputs(3, 2000);
      inputs[1][1234] = bad;
      const Outcome outcome = reduce({compression, 3, 2000}, inputs);
      for (const Vector& y : outcome.results) {
        EXPECT_FALSE(std::isfinite(y[1234])) << name_of(compression);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_TRUE(std::isfinite(y[i]) || block_begin(i) == block_begin(1234)) << name_of(compression) << ' ' << i;
        }
      }
    }
  }
}

TEST(Compression, WireBytesAreThoseOfThePlans) {
  for (Compression compression : {Compression::none, Compression::bf16, Compression::int8}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (std::int64_t elems : {1, 700, 4096, 50'003}) {
        const Outcome outcome =
            reduce({.compression = compression, .num_ranks = ranks, .elems = elems, .algorithm = "two_shot"},
                   random_inputs(ranks, elems));
        const std::int64_t mean = (outcome.bytes + ranks - 1) / ranks;
        EXPECT_EQ(wire_bytes(compression, elems, ranks), mean) << name_of(compression) << ' ' << ranks << ' ' << elems;
      }
    }
  }
  EXPECT_EQ(wire_bytes(Compression::none, 1 << 20, 4), 6 << 20);
  EXPECT_EQ(wire_bytes(Compression::bf16, 1 << 20, 4), 3 << 20);
  EXPECT_EQ(wire_bytes(Compression::int8, 1 << 20, 4), 6 * (1 << 18) * 65 / 64);
}

TEST(Compression, NamesAreParsed) {
  for (Compression compression : {Compression::none, Compression::bf16, Compression::int8}) {
    EXPECT_EQ(parse_compression(name_of(compression)), compression);
  }
  EXPECT_THROW(parse_compression("fp4"), core::Error);
}

}  // namespace
}  // namespace lockstep::parallel
