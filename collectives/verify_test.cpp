#include "collectives/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"

namespace lockstep::collectives {
namespace {

using core::DType;
using core::ReduceOp;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSeed = 42;

Operation operation_of(Kind kind, std::int64_t count, DType dtype = DType::f32, ReduceOp op = ReduceOp::sum) {
  Operation operation;
  operation.kind = kind;
  operation.count = count;
  operation.dtype = dtype;
  operation.op = op;
  return operation;
}

Bytes input_of(const Verifier& verifier, const Operation& operation, int num_ranks, int rank, std::uint64_t round) {
  Bytes input(static_cast<std::size_t>(input_bytes(operation, num_ranks, rank)));
  verifier.fill_input(rank, round, input.data());
  return input;
}

std::vector<Bytes> all_inputs(const Verifier& verifier, const Operation& operation, int num_ranks,
                              std::uint64_t round) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < num_ranks; ++r) inputs.push_back(input_of(verifier, operation, num_ranks, r, round));
  return inputs;
}

// Reduces operands pair by pair, each time two at random, until one is left: any order and any grouping.
Bytes reduced_in_random_order(std::vector<Bytes> operands, const Operation& operation, core::Random& random) {
  const std::size_t elements = operands.front().size() / core::size_of(operation.dtype);
  const int num_ranks = static_cast<int>(operands.size());
  while (operands.size() > 1) {
    std::swap(operands.back(), operands[random.below(operands.size())]);
    const Bytes last = std::move(operands.back());
    operands.pop_back();
    Bytes& other = operands[random.below(operands.size())];
    core::reduce_scalar(operation.dtype, operation.op, other.data(), last.data(), other.data(), elements);
  }
  if (operation.op == ReduceOp::avg) {
    core::finish_average(operation.dtype, operands.front().data(), elements, num_ranks);
  }
  return operands.front();
}

Bytes block_of(const Bytes& buffer, const std::vector<std::int64_t>& offsets, int block, std::size_t element) {
  const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(offsets[static_cast<std::size_t>(block)] *
                                                                  static_cast<std::int64_t>(element));
  const auto end = buffer.begin() + static_cast<std::ptrdiff_t>(offsets[static_cast<std::size_t>(block) + 1] *
                                                                static_cast<std::int64_t>(element));
  return {begin, end};
}

// Result of a correct implementation for these inputs, by the definition of the collective.
Bytes correct_output(const std::vector<Bytes>& inputs, const Operation& operation, int rank, core::Random& random) {
  const int n = static_cast<int>(inputs.size());
  const std::size_t element = core::size_of(operation.dtype);
  Bytes output;
  for (int b = 0; b < output_blocks(operation.kind, n, operation.root, rank); ++b) {
    const Origin origin = origin_of(operation.kind, n, operation.root, rank, b);
    std::vector<Bytes> operands;
    for (int r = 0; r < n; ++r) {
      if (!origin.reduced && r != origin.rank) continue;
      operands.push_back(
          block_of(inputs[static_cast<std::size_t>(r)], input_offsets(operation, n, r), origin.block, element));
    }
    const Bytes block = origin.reduced ? reduced_in_random_order(operands, operation, random) : operands.front();
    output.insert(output.end(), block.begin(), block.end());
  }
  return output;
}

std::string label(const Operation& operation, int num_ranks) {
  return std::string(name_of(operation.kind)) + " " + std::string(core::name_of(operation.dtype)) + " " +
         std::string(core::name_of(operation.op)) + " ranks " + std::to_string(num_ranks);
}

TEST(Verifier, ReductionsAreExactInAnyOrder) {
  core::Random random(1);
  for (int n : {1, 2, 3, 8, 17, 128}) {
    for (DType dtype : core::all_dtypes()) {
      for (ReduceOp op : core::all_reduce_ops()) {
        const Operation operation = operation_of(Kind::all_reduce, 500, dtype, op);
        const Verifier verifier(operation, n, kSeed);
        const std::vector<Bytes> inputs = all_inputs(verifier, operation, n, 3);
        for (int trial = 0; trial < 4; ++trial) {
          const Bytes output = correct_output(inputs, operation, 0, random);
          ASSERT_EQ(verifier.count_wrong(n - 1, 3, output.data()), 0) << label(operation, n);
        }
      }
    }
  }
}

// Holds also outside the dtype: summing in a wider type and rounding once gives the same bits (fused executors do
// that).
TEST(Verifier, SumsAreThoseOfAWiderType) {
  for (int n : {2, 3, 8, 17, 128}) {
    const Operation operation = operation_of(Kind::all_reduce, 8191, DType::f32);
    const Verifier verifier(operation, n, kSeed);
    std::vector<double> wide(8191, 0.0);
    for (const Bytes& input : all_inputs(verifier, operation, n, 0)) {
      for (std::size_t i = 0; i < wide.size(); ++i) {
        float x = 0;
        std::memcpy(&x, input.data() + 4 * i, 4);
        wide[i] += static_cast<double>(x);
      }
    }
    std::vector<float> output(wide.begin(), wide.end());
    EXPECT_EQ(verifier.count_wrong(0, 0, output.data()), 0);
    EXPECT_EQ(std::vector<double>(output.begin(), output.end()), wide) << "not exact in float";
  }
}

TEST(Verifier, EveryKindAcceptsWhatItsDefinitionGives) {
  core::Random random(2);
  for (Kind kind : all_kinds()) {
    for (int n : {1, 2, 3, 8, 17}) {
      for (std::int64_t count : {0, 1, 5, 8191, 20000}) {
        for (int root : {0, n - 1}) {
          Operation operation = operation_of(kind, count, DType::bf16);
          operation.root = root;
          const Verifier verifier(operation, n, kSeed);
          const std::vector<Bytes> inputs = all_inputs(verifier, operation, n, 9);
          const int rank = static_cast<int>(random.below(static_cast<std::uint64_t>(n)));
          Bytes output = correct_output(inputs, operation, rank, random);
          ASSERT_EQ(static_cast<std::int64_t>(output.size()), output_bytes(operation, n, rank));
          EXPECT_EQ(verifier.count_wrong(rank, 9, output.data()), 0) << label(operation, n) << " count " << count;
        }
      }
    }
  }
}

TEST(Verifier, UntouchedOutputIsWrongInEveryElement) {
  for (Kind kind : all_kinds()) {
    for (DType dtype : core::all_dtypes()) {
      const Operation operation = operation_of(kind, 3, dtype);
      const Verifier verifier(operation, 5, kSeed);
      Bytes output(static_cast<std::size_t>(output_bytes(operation, 5, 0)));
      verifier.fill_poison(0, 4, output.data());
      EXPECT_EQ(verifier.count_wrong(0, 4, output.data()),
                static_cast<std::int64_t>(output.size() / core::size_of(dtype)))
          << label(operation, 5);
    }
  }
}

TEST(Verifier, RanksWithoutOutputHaveNothingWrong) {
  const Verifier verifier(operation_of(Kind::reduce, 100), 4, kSeed);
  EXPECT_EQ(verifier.count_wrong(2, 0, nullptr), 0);
  EXPECT_EQ(output_bytes(operation_of(Kind::gather, 100), 4, 1), 0);
}

TEST(Verifier, OneWrongBitIsOneWrongElement) {
  core::Random random(3);
  for (DType dtype : core::all_dtypes()) {
    const Operation operation = operation_of(Kind::all_gather, 30000, dtype);
    const Verifier verifier(operation, 3, kSeed);
    Bytes output = correct_output(all_inputs(verifier, operation, 3, 0), operation, 1, random);
    const std::size_t last = output.size() - 1;
    output[last] ^= std::byte{1};
    EXPECT_EQ(verifier.count_wrong(1, 0, output.data()), 1) << core::name_of(dtype);
    output[last] ^= std::byte{1};
    output[0] ^= std::byte{128};
    EXPECT_EQ(verifier.count_wrong(1, 0, output.data()), 1) << core::name_of(dtype);
  }
}

TEST(Verifier, RoundsRanksAndBlocksHaveDifferentInputs) {
  const Operation operation = operation_of(Kind::all_to_all, 64, DType::i8);
  const Verifier verifier(operation, 8, kSeed);
  std::set<std::string> blocks;
  for (std::uint64_t round : {0u, 1u, 2u}) {
    for (int rank = 0; rank < 8; ++rank) {
      const Bytes input = input_of(verifier, operation, 8, rank, round);
      for (int b = 0; b < 8; ++b) {
        const Bytes block = block_of(input, input_offsets(operation, 8, rank), b, 1);
        blocks.emplace(reinterpret_cast<const char*>(block.data()), block.size());
      }
    }
  }
  EXPECT_EQ(blocks.size(), 3u * 8 * 8);
}

TEST(Verifier, TheSeedDecidesAll) {
  const Operation operation = operation_of(Kind::all_reduce, 64);
  const Bytes first_input = input_of(Verifier(operation, 2, 1), operation, 2, 0, 0);
  EXPECT_EQ(first_input, input_of(Verifier(operation, 2, 1), operation, 2, 0, 0));
  EXPECT_NE(first_input, input_of(Verifier(operation, 2, 2), operation, 2, 0, 0));
}

TEST(Verifier, TheLastRoundsResultIsWrongInThis) {
  core::Random random(4);
  for (Kind kind : all_kinds()) {
    const Operation operation = operation_of(kind, 4096, DType::f8e5m2);
    const Verifier verifier(operation, 4, kSeed);
    const Bytes output = correct_output(all_inputs(verifier, operation, 4, 0), operation, 0, random);
    EXPECT_GT(verifier.count_wrong(0, 1, output.data()), 1000) << name_of(kind);
  }
}

// A missing contribution, or one that is counted twice if that changes anything, is detected in every dtype and
// reduction.
TEST(Verifier, AMissingContributionIsSeen) {
  core::Random random(5);
  for (int n : {2, 3, 8, 17, 128}) {
    for (DType dtype : core::all_dtypes()) {
      for (ReduceOp op : core::all_reduce_ops()) {
        if (dtype == DType::i8 && op == ReduceOp::avg && n == 128) continue;  // 127 / 128 is 0, whatever is missing
        const Operation operation = operation_of(Kind::all_reduce, 8191, dtype, op);
        const Verifier verifier(operation, n, kSeed);
        std::vector<Bytes> inputs = all_inputs(verifier, operation, n, 0);
        inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(random.below(inputs.size())));
        Operation partial = operation;
        if (op == ReduceOp::avg) partial.op = ReduceOp::sum;
        Bytes output = reduced_in_random_order(inputs, partial, random);
        if (op == ReduceOp::avg) core::finish_average(dtype, output.data(), 8191, n);
        EXPECT_GT(verifier.count_wrong(0, 0, output.data()), 0) << label(operation, n);
      }
    }
  }
}

TEST(Verifier, AContributionTakenTwiceIsSeen) {
  core::Random random(6);
  for (int n : {2, 8, 128}) {
    for (DType dtype : core::all_dtypes()) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
        const Operation operation = operation_of(Kind::all_reduce, 8191, dtype, op);
        const Verifier verifier(operation, n, kSeed);
        std::vector<Bytes> inputs = all_inputs(verifier, operation, n, 0);
        inputs.push_back(inputs[random.below(inputs.size())]);
        const Bytes output = reduced_in_random_order(inputs, operation, random);
        EXPECT_GT(verifier.count_wrong(0, 0, output.data()), 0) << label(operation, n);
      }
    }
  }
}

TEST(Verifier, ABlockOfTheWrongRankIsSeen) {
  core::Random random(7);
  const Operation operation = operation_of(Kind::all_gather, 1000, DType::u8);
  const Verifier verifier(operation, 4, kSeed);
  Bytes output = correct_output(all_inputs(verifier, operation, 4, 0), operation, 0, random);
  std::copy_n(output.begin() + 1000, 1000, output.begin() + 2000);
  EXPECT_GT(verifier.count_wrong(0, 0, output.data()), 900);
  EXPECT_LE(verifier.count_wrong(0, 0, output.data()), 1000);
}

// Tests every displacement by a multiple of a chunk, for counts that are powers of two and multiples of the first
// period.
TEST(Verifier, DisplacedChunksAreSeen) {
  core::Random random(8);
  for (std::int64_t count : {1 << 16, 8191 * 16, 8179 * 16}) {
    const Operation operation = operation_of(Kind::all_reduce, count, DType::f16);
    const Verifier verifier(operation, 4, kSeed);
    const Bytes output = correct_output(all_inputs(verifier, operation, 4, 0), operation, 0, random);
    const std::size_t chunk_bytes = output.size() / 16;
    for (std::size_t shift = 1; shift < 16; ++shift) {
      Bytes moved = output;
      std::copy_n(output.begin(), chunk_bytes, moved.begin() + static_cast<std::ptrdiff_t>(shift * chunk_bytes));
      EXPECT_GT(verifier.count_wrong(0, 0, moved.data()), count / 32) << "count " << count << " shift " << shift;
    }
  }
}

TEST(Verifier, AShiftByOneElementIsSeen) {
  core::Random random(9);
  const Operation operation = operation_of(Kind::broadcast, 5000, DType::i8);
  const Verifier verifier(operation, 2, kSeed);
  Bytes output = correct_output(all_inputs(verifier, operation, 2, 0), operation, 1, random);
  std::rotate(output.begin(), output.begin() + 1, output.end());
  EXPECT_GT(verifier.count_wrong(1, 0, output.data()), 4900);
}

TEST(Verifier, BlocksOfManyRanksAndConsecutiveRoundsBeginAtDifferentPlaces) {
  // One element per block: with 8-byte integers two of a rank's blocks are equal only if they start at one position.
  constexpr int kRanks = 1024;
  for (std::int64_t count : {1, 8191}) {
    Operation operation = operation_of(Kind::scatter, 1, DType::u64);
    operation.matrix = nullptr;
    operation.count = count;
    const Verifier verifier(operation, kRanks, kSeed);
    std::vector<std::uint64_t> firsts;
    for (std::uint64_t round : {0u, 1u}) {
      std::vector<std::uint64_t> input(static_cast<std::size_t>(kRanks * count));
      verifier.fill_input(0, round, input.data());
      for (std::size_t b = 0; b < kRanks; ++b) firsts.push_back(input[b * static_cast<std::size_t>(count)]);
    }
    std::sort(firsts.begin(), firsts.end());
    EXPECT_EQ(std::adjacent_find(firsts.begin(), firsts.end()), firsts.end()) << "count " << count;
  }
}

TEST(Verifier, AllToAllVFollowsItsMatrix) {
  core::Random random(10);
  auto matrix = std::make_shared<CountMatrix>();
  matrix->num_ranks = 3;
  matrix->counts = {0, 5, 2, 7, 0, 0, 1, 9000, 3};
  Operation operation = operation_of(Kind::all_to_all_v, 0, DType::f64);
  operation.matrix = matrix;
  const Verifier verifier(operation, 3, kSeed);
  const std::vector<Bytes> inputs = all_inputs(verifier, operation, 3, 1);
  EXPECT_EQ(inputs[2].size(), 9004 * 8u);
  for (int rank = 0; rank < 3; ++rank) {
    const Bytes output = correct_output(inputs, operation, rank, random);
    EXPECT_EQ(verifier.count_wrong(rank, 1, output.data()), 0) << rank;
  }
  Bytes output = correct_output(inputs, operation, 1, random);
  std::fill_n(output.begin() + 40, 72000, std::byte{0});
  EXPECT_EQ(verifier.count_wrong(1, 1, output.data()), 9000);
}

TEST(Verifier, ToleratesUlpsOfAveragesOnlyWhereAsked) {
  core::Random random(11);
  const Operation operation = operation_of(Kind::all_reduce, 100, DType::f32, ReduceOp::avg);
  const Verifier strict(operation, 3, kSeed);
  const Verifier lenient(operation, 3, kSeed, 2);
  Bytes output = correct_output(all_inputs(strict, operation, 3, 0), operation, 0, random);
  std::uint32_t bits = 0;
  std::memcpy(&bits, output.data(), 4);
  const auto wrong_with = [&](const Verifier& verifier, std::uint32_t changed) {
    std::memcpy(output.data(), &changed, 4);
    return verifier.count_wrong(0, 0, output.data());
  };
  EXPECT_EQ(wrong_with(strict, bits + 1), 1);
  EXPECT_EQ(wrong_with(lenient, bits + 2), 0);
  EXPECT_EQ(wrong_with(lenient, bits - 2), 0);
  EXPECT_EQ(wrong_with(lenient, bits + 3), 1);
  EXPECT_EQ(wrong_with(lenient, bits ^ 0x80000000u), 1);
  const Operation sum = operation_of(Kind::all_reduce, 100);
  const Verifier not_for_sums(sum, 3, kSeed, 2);
  output = correct_output(all_inputs(not_for_sums, sum, 3, 0), sum, 0, random);
  output[0] ^= std::byte{1};
  EXPECT_EQ(not_for_sums.count_wrong(0, 0, output.data()), 1);
}

TEST(InPlaceLayout, PutsTheAliasedBlocksTogether) {
  const auto layout = [](Kind kind, int rank, int root = 0) {
    Operation operation = operation_of(kind, 10);
    operation.root = root;
    const InPlaceLayout places = in_place_layout(operation, 4, rank);
    return std::vector<std::int64_t>{places.buffer_bytes, places.input_at, places.output_at};
  };
  using Expected = std::vector<std::int64_t>;
  EXPECT_EQ(layout(Kind::all_reduce, 2), (Expected{40, 0, 0}));
  EXPECT_EQ(layout(Kind::all_gather, 3), (Expected{160, 120, 0}));
  EXPECT_EQ(layout(Kind::reduce_scatter, 2), (Expected{160, 0, 80}));
  EXPECT_EQ(layout(Kind::scatter, 1, 1), (Expected{160, 0, 40}));
  EXPECT_EQ(layout(Kind::scatter, 2, 1), (Expected{40, 0, 0}));
  EXPECT_EQ(layout(Kind::gather, 1, 1), (Expected{160, 40, 0}));
  EXPECT_EQ(layout(Kind::gather, 2, 1), (Expected{40, 0, 0}));
  EXPECT_EQ(layout(Kind::all_to_all, 1), (Expected{160, 0, 0}));
}

}  // namespace
}  // namespace lockstep::collectives
