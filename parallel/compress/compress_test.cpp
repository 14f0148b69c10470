#include "parallel/compress/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/plan/cost.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::parallel {
namespace {

using Vector = std::vector<float>;
using workload::compression_names;
using workload::parse_compression;
constexpr std::int64_t kCompressionBlock = 256;

struct Case {
  Compression compression = {};
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
  std::vector<Vector> results;  // [rank], of the last call
  std::vector<double> sum;      // rank 0's results, summed over all calls
  std::int64_t bytes = 0;       // sent by all ranks in a call, counted in the plans
};

// `inputs`: [rank], the same in each of this many calls; `forgets`: before each.
Outcome reduce(const Case& c, const std::vector<Vector>& inputs, int calls = 1, bool forgets = false) {
  Outcome outcome;
  outcome.results.resize(inputs.size());
  outcome.sum.resize(inputs.front().size());
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
    kernels::choose_gemms_by_rule(where);
    const auto prepare = [&](const collectives::Operation& operation, std::string_view algorithm) {
      backends::Prepared prepared = mesh.prepare(0, operation, algorithm);
      if (rank == 0) outcome.bytes += bytes_sent(prepared, operation);
      return prepared;
    };
    CompressionState state;
    const GradientReduction reduction{c.compression, c.elems,     c.op, c.in_place, c.num_ranks,
                                      rank,          c.algorithm, 1,    &state};
    const backends::Prepared prepared = prepare_reduction(reduction, prepare, memory, where);
    const Tensor x = memory.make(MemoryKind::gradients, core::DType::f32, c.elems);
    const Tensor apart = memory.make(MemoryKind::gradients, core::DType::f32, c.elems);
    const Tensor& y = c.in_place ? x : apart;
    for (int call = 0; call < calls; ++call) {
      if (forgets) state.calls = 0;
      std::memcpy(x.data(), inputs[r].data(), static_cast<std::size_t>(x.bytes()));
      prepared.collective->run(x.data(), y.data());
      for (std::size_t i = 0; rank == 0 && i < outcome.sum.size(); ++i) outcome.sum[i] += double{y.as<float>()[i]};
    }
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

// Sum of element i over the ranks.
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
  double largest_share = 0;  // used part of the bound
  for (std::size_t i = 0; i < inputs.front().size(); ++i) {
    const double bound =
        c.compression == CompressionWay::bf16 ? bf16_bound(inputs, i, c.algorithm == "ring") : int8_bound(inputs, i);
    const double error = std::abs(outcome.results[0][i] * divisor - exact_sum(inputs, i));
    ASSERT_LE(error, bound * (1 + 1e-6)) << text_of(c.compression) << ' ' << c.num_ranks << ' ' << c.elems << ' ' << i;
    largest_share = std::max(largest_share, error / bound);
  }
  if (c.elems >= 1000) {
    EXPECT_GT(largest_share, 0.2) << "has it been compressed at all?";
  }
  for (const Vector& y : outcome.results)
    EXPECT_TRUE(same_bits(y, outcome.results[0])) << c.num_ranks << ' ' << c.elems;
}

TEST(Compression, ErrorsAreWithinTheFormatsBoundsAndAllRanksGetTheSameBits) {
  for (Compression compression : {CompressionWay::bf16, CompressionWay::int8}) {
    for (int ranks : {2, 3, 4, 8}) {
      for (std::int64_t elems : {1, 255, 257, 1500, 40'001}) {
        expect_within_bounds({compression, ranks, elems});
      }
    }
    expect_within_bounds({.compression = compression, .num_ranks = 3, .elems = 30'000, .in_place = true});
    expect_within_bounds({.compression = compression, .num_ranks = 4, .elems = 5000, .op = core::ReduceOp::avg});
  }
  expect_within_bounds({.compression = CompressionWay::bf16, .num_ranks = 4, .elems = 30'000, .algorithm = "ring"});
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
    const Outcome outcome = reduce({CompressionWay::int8, ranks, 3000}, inputs);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(outcome.results.back()[i], static_cast<float>(ranks) * x[i]) << ranks << ' ' << i;
    }
    // bf16 holds integers up to 256.
    std::vector<Vector> small(static_cast<std::size_t>(ranks), Vector(3000));
    for (std::size_t r = 0; r < small.size(); ++r) {
      for (std::size_t i = 0; i < x.size(); ++i) small[r][i] = static_cast<float>(static_cast<int>((i + r) % 101) - 50);
    }
    const Outcome rounded = reduce({CompressionWay::bf16, ranks, 3000}, small);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(rounded.results.back()[i], static_cast<float>(exact_sum(small, i))) << ranks << ' ' << i;
    }
  }
}

TEST(Compression, NaNAndInfinityStayVisible) {
  for (Compression compression : {CompressionWay::bf16, CompressionWay::int8}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto inputs = random_inputs(3, 2000);
      inputs[1][1234] = bad;
      const Outcome outcome = reduce({compression, 3, 2000}, inputs);
      for (const Vector& y : outcome.results) {
        EXPECT_FALSE(std::isfinite(y[1234])) << text_of(compression);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_TRUE(std::isfinite(y[i]) || block_begin(i) == block_begin(1234)) << text_of(compression) << ' ' << i;
        }
      }
    }
  }
}

TEST(Compression, WireBytesAreThoseOfThePlans) {
  for (Compression compression : {CompressionWay::none, CompressionWay::bf16, CompressionWay::int8}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (std::int64_t elems : {1, 700, 4096, 50'003}) {
        const Outcome outcome =
            reduce({.compression = compression, .num_ranks = ranks, .elems = elems, .algorithm = "two_shot"},
                   random_inputs(ranks, elems));
        const std::int64_t mean = (outcome.bytes + ranks - 1) / ranks;
        EXPECT_EQ(wire_bytes(compression, elems, ranks), mean) << text_of(compression) << ' ' << ranks << ' ' << elems;
      }
    }
  }
  EXPECT_EQ(wire_bytes(CompressionWay::none, 1 << 20, 4), 6 << 20);
  EXPECT_EQ(wire_bytes(CompressionWay::bf16, 1 << 20, 4), 3 << 20);
  EXPECT_EQ(wire_bytes(CompressionWay::int8, 1 << 20, 4), 6 * (1 << 18) * 65 / 64);
}

constexpr std::array kLossy{"int8",
                            "int8:feedback=1",
                            "int4",
                            "fp8",
                            "sign",
                            "sign:feedback=0",
                            "topk:density=0.05",
                            "topk:density=0.05:feedback=0",
                            "threshold:at=0.4:density=0.05",
                            "randomk:density=0.05",
                            "randomk:density=0.05:feedback=0",
                            "powersgd:rank=4",
                            "powersgd:rank=4:feedback=0"};

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

// |mean of the results - the sum| / |the sum|.
double relative_error(const Outcome& outcome, const std::vector<Vector>& inputs, int calls) {
  std::vector<double> sum;
  std::vector<double> error;
  for (std::size_t i = 0; i < outcome.sum.size(); ++i) {
    sum.push_back(exact_sum(inputs, i));
    error.push_back(outcome.sum[i] / calls - sum.back());
  }
  return norm_of(error) / norm_of(sum);
}

TEST(Compression, AllWaysGiveAllRanksTheSameBitsAgainAndAgain) {
  for (const char* way : kLossy) {
    for (const int ranks : {2, 3, 4}) {
      for (const std::int64_t elems : {1, 257, 5003}) {
        const Case c{.compression = parse_compression(way), .num_ranks = ranks, .elems = elems};
        const auto inputs = random_inputs(ranks, elems);
        const Outcome once = reduce(c, inputs, 3);
        const Outcome again = reduce(c, inputs, 3);
        for (const Vector& y : once.results) EXPECT_TRUE(same_bits(y, again.results[0])) << way << ' ' << ranks;
      }
    }
  }
}

// The pending error is bounded, so that the mean of many results converges to the sum: its error falls with the number
// of calls. Without feedback the error stays, except for elements that are drawn again.
TEST(Compression, FeedbackSendsInTheEndWhatWasLeftOut) {
  const auto inputs = random_inputs(3, 5003);
  for (const char* way : {"int8", "int4", "fp8", "sign", "topk:density=0.05", "threshold:at=0.4:density=0.1",
                          "randomk:density=0.05", "powersgd:rank=4"}) {
    Case c{.compression = parse_compression(way), .num_ranks = 3, .elems = 5003};
    c.compression.feedback = true;
    const double after_one = relative_error(reduce(c, inputs), inputs, 1);
    const double many = relative_error(reduce(c, inputs, 400), inputs, 400);
    EXPECT_LT(many, 0.12) << way;
    EXPECT_LT(many, 0.5 * after_one) << way;
    if (c.compression.way == CompressionWay::randomk) continue;
    c.compression.feedback = false;
    const double without = relative_error(reduce(c, inputs, 100), inputs, 100);
    EXPECT_GT(without, c.compression.way == CompressionWay::powersgd ? 0.5 * after_one : 0.9 * after_one) << way;
  }
}

TEST(Compression, WhatIsForgottenIsNotOwed) {
  const auto inputs = random_inputs(2, 3000);
  for (const char* way : kLossy) {
    const Case c{.compression = parse_compression(way), .elems = 3000};
    const Outcome once = reduce(c, inputs);
    EXPECT_TRUE(same_bits(reduce(c, inputs, 4, true).results[0], once.results[0])) << way;
    if (!c.compression.remembers()) continue;
    EXPECT_FALSE(same_bits(reduce(c, inputs, 4).results[0], once.results[0])) << way;
  }
}

TEST(Compression, AveragesAndCallsInPlaceAreSumsScaled) {
  const auto inputs = random_inputs(4, 3000);
  for (const char* way : kLossy) {
    Case c{.compression = parse_compression(way), .num_ranks = 4, .elems = 3000};
    const Outcome apart = reduce(c, inputs, 2);
    c.in_place = true;
    EXPECT_TRUE(same_bits(reduce(c, inputs, 2).results[0], apart.results[0])) << way;
    c.op = core::ReduceOp::avg;
    const Outcome average = reduce(c, inputs, 1);
    const Outcome sum = reduce({.compression = c.compression, .num_ranks = 4, .elems = 3000}, inputs, 1);
    for (std::size_t i = 0; i < 3000; ++i) {
      ASSERT_NEAR(average.results[0][i] * 4, sum.results[0][i], 1e-3 * std::abs(sum.results[0][i]) + 1e-5) << way;
    }
  }
}

// A matrix of rank 2 is found by a product of rank 4 in its first call, and by one of rank 1 not at all.
TEST(Compression, AMatrixOfLowRankIsExact) {
  constexpr int kSide = 48;
  std::vector<Vector> inputs(2, Vector(kSide * kSide));
  for (std::size_t r = 0; r < 2; ++r) {
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        const double value = std::sin(i + 1.0) * std::cos(j * 0.7) + (static_cast<double>(r) + 1) * (i % 5) * (j % 3);
        inputs[r][static_cast<std::size_t>(i * kSide + j)] = static_cast<float>(value);
      }
    }
  }
  const auto error = [&](const char* way) {
    const Case c{.compression = parse_compression(way), .elems = kSide * kSide};
    return relative_error(reduce(c, inputs), inputs, 1);
  };
  EXPECT_LT(error("powersgd:rank=4"), 1e-5);
  EXPECT_GT(error("powersgd:rank=1"), 1e-3);
}

TEST(Compression, BytesOfEveryWayAreThoseOfThePlans) {
  for (const char* way : kLossy) {
    const Compression compression = parse_compression(way);
    for (const int ranks : {2, 3, 5}) {
      for (const std::int64_t elems : {700, 50'003}) {
        const Case c{.compression = compression, .num_ranks = ranks, .elems = elems, .algorithm = "two_shot"};
        const std::int64_t all = reduce(c, random_inputs(ranks, elems)).bytes;
        // The formula of two all-reduces is rounded up twice.
        EXPECT_GE(wire_bytes(compression, elems, ranks), (all + ranks - 1) / ranks) << way << ' ' << ranks;
        EXPECT_LE(wire_bytes(compression, elems, ranks), (all + ranks - 1) / ranks + 1) << way << ' ' << ranks;
      }
    }
  }
  // With 2^20 elements on 4 ranks: codes of half a byte and of a bit with 4 bytes for 256, pairs of 8 bytes, products
  // of two matrices of 1024 x 4.
  const auto bytes = [](const char* way) { return wire_bytes(parse_compression(way), 1 << 20, 4); };
  EXPECT_EQ(bytes("int4"), 6 * ((1 << 17) + (1 << 12)));
  EXPECT_EQ(bytes("sign"), 6 * ((1 << 15) + (1 << 12)));
  EXPECT_EQ(bytes("topk:density=0.015625"), 3 * 8 * (1 << 14));
  EXPECT_EQ(bytes("randomk:density=0.015625"), 6 * (1 << 14));
  EXPECT_EQ(bytes("powersgd:rank=4"), 6 * 2 * 4 * 1024);
}

// [rank] the share that a reduce-scatter in two hops leaves: the mean of `calls` with the same input.
std::vector<Vector> scatter_in_two_hops(const Compression& compression, int near_ranks,
                                        const std::vector<Vector>& inputs, int calls = 1) {
  const auto ranks = static_cast<int>(inputs.size());
  const int sets = ranks / near_ranks;
  std::vector<backends::Channel> channels(static_cast<std::size_t>(sets + near_ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    channels[static_cast<std::size_t>(rank / near_ranks)].push_back(rank);
    channels[static_cast<std::size_t>(sets + rank % near_ranks)].push_back(rank);
  }
  const auto elems = static_cast<std::int64_t>(inputs.front().size());
  std::vector<Vector> means(inputs.size(), Vector(static_cast<std::size_t>(elems / ranks)));
  backends::MeshOptions options;
  options.num_ranks = ranks;
  backends::run_mesh(options, channels, [&](backends::MeshRank& mesh) {
    const int rank = mesh.messages.rank();
    Memory memory(mesh.device);
    kernels::ThreadPool pool(1);
    const kernels::Context where(pool);
    const auto on = [&mesh](int channel) {
      return [&mesh, channel](const collectives::Operation& operation, std::string_view algorithm) {
        return mesh.prepare(static_cast<std::size_t>(channel), operation, algorithm);
      };
    };
    CompressionState state;
    GradientReduction reduction{.compression = compression, .elems = elems, .num_ranks = ranks, .rank = rank};
    reduction.state = &state;
    const TwoHopCollectives places{near_ranks, on(rank / near_ranks), on(sets + rank % near_ranks)};
    const backends::Prepared prepared = prepare_two_hop_scatter(reduction, places, memory, where);
    const Tensor y = memory.make(MemoryKind::gradients, core::DType::f32, elems / ranks);
    Vector& mean = means[static_cast<std::size_t>(rank)];
    for (int call = 0; call < calls; ++call) {
      prepared.collective->run(inputs[static_cast<std::size_t>(rank)].data(), y.data());
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += y.as<float>()[i] / static_cast<float>(calls);
    }
  });
  return means;
}

// Integers that the codes hold come out exact, and only where shares are in their places.
TEST(TwoHops, EachRankGetsItsOwnShare) {
  for (const auto& [near_ranks, ranks] : {std::pair{2, 4}, std::pair{2, 6}, std::pair{3, 6}, std::pair{4, 8}}) {
    const std::int64_t share = 2 * kCompressionBlock;
    Vector x(static_cast<std::size_t>(share * ranks));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i % kCompressionBlock == 7 ? 127.0F : static_cast<float>(static_cast<int>(i * 37 % 251) - 125);
    }
    const std::vector<Vector> inputs(static_cast<std::size_t>(ranks), x);
    const auto shares = scatter_in_two_hops(CompressionWay::int8, near_ranks, inputs);
    for (std::size_t r = 0; r < shares.size(); ++r) {
      for (std::size_t i = 0; i < shares[r].size(); ++i) {
        ASSERT_EQ(shares[r][i], static_cast<float>(ranks) * x[r * static_cast<std::size_t>(share) + i])
            << r << ' ' << i;
      }
    }
  }
}

TEST(TwoHops, FeedbackSendsInTheEndWhatWasLeftOut) {
  constexpr std::size_t kShare = 1184;  // no whole number of blocks
  const auto inputs = random_inputs(4, 4 * kShare);
  const auto error_of = [&](bool feedback, int calls) {
    Compression compression = CompressionWay::int4;
    compression.feedback = feedback;
    const auto shares = scatter_in_two_hops(compression, 2, inputs, calls);
    std::vector<double> errors;
    for (std::size_t i = 0; i < inputs.front().size(); ++i) {
      errors.push_back(shares[i / kShare][i % kShare] - exact_sum(inputs, i));
    }
    return norm_of(errors);
  };
  EXPECT_LT(error_of(true, 50), 0.1 * error_of(true, 1));
  EXPECT_GT(error_of(false, 50), 0.9 * error_of(false, 1));
}

TEST(Compression, TextsAreParsed) {
  for (const char* way : kLossy) EXPECT_EQ(text_of(parse_compression(way)), way);
  for (const std::string_view name : compression_names()) {
    EXPECT_EQ(parse_compression(text_of(parse_compression(name))), parse_compression(name)) << name;
  }
  EXPECT_TRUE(parse_compression("topk").feedback);
  EXPECT_FALSE(parse_compression("int4").feedback);
  for (const char* bad : {"fp4", "topk:density=0", "topk:density=2", "topk:rank=3", "powersgd:rank=1.5",
                          "none:feedback=1", "bf16:feedback=0", "sign:feedback=2", "topk:density"}) {
    EXPECT_THROW(parse_compression(bad), core::Error) << bad;
  }
}

}  // namespace
}  // namespace lockstep::parallel
