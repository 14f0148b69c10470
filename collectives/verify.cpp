// The inputs of verify.h, which reduce exactly in any order, and the comparison of outputs with their exact results.
#include "collectives/verify.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep::collectives {

// Any bits: for collectives that only move data.
std::vector<std::byte> copy_pattern(core::DType dtype, int rank, std::uint64_t seed, std::size_t length);

// Rank `rank`'s operands of a reduction over num_ranks.
std::vector<std::byte> operand_pattern(core::DType dtype, core::ReduceOp op, int rank, int num_ranks,
                                       std::uint64_t seed, std::size_t length);

namespace {

using core::DType;
using core::ReduceOp;

// One element of the patterns: its position, its rank, and its two random numbers.
struct Site {
  int rank;
  int num_ranks;
  std::uint64_t shared;  // random, the same on all ranks at this position
  std::uint64_t own;     // random, this rank's
};

// Largest e such that 2^e and 2^-e are normal numbers, less one: room for one significand below 2.
int exponent_budget(DType dtype) {
  switch (dtype) {
    case DType::f8e4m3:
      return 5;  // normal from 2^-6, largest 1.75 * 2^8
    case DType::f8e5m2:
    case DType::f16:
      return 13;
    case DType::f64:
      return 1021;
    default:
      return 125;
  }
}

// Ranks that share a budget at a position: at most `budget` of them, chosen by the position. False: this one is not
// among them.
bool takes_part(const Site& site, std::int64_t budget) {
  const auto ranks = static_cast<std::uint64_t>(site.num_ranks);
  const std::uint64_t turn = (static_cast<std::uint64_t>(site.rank) + (site.shared >> 16)) % ranks;
  return static_cast<std::int64_t>(turn) < budget;
}

// A non-zero integer, or zero for ranks beyond the budget, with the sum of |x| over the ranks at most `budget`.
std::int64_t budgeted_magnitude(const Site& site, std::int64_t budget) {
  if (!takes_part(site, budget)) return 0;
  const std::int64_t largest = budget / std::min<std::int64_t>(site.num_ranks, budget);
  return 1 + static_cast<std::int64_t>((site.own >> 8) % static_cast<std::uint64_t>(largest));
}

// Largest sum that is exact in the dtype; for 64-bit integers limited by the arithmetic here.
std::int64_t sum_budget(DType dtype) {
  const int bits = std::min(core::significand_bits(dtype), 62);
  const std::int64_t power = std::int64_t{1} << bits;
  return core::is_floating(dtype) ? power : power - 1;
}

bool is_signed(DType dtype) {
  return dtype != DType::u8 && dtype != DType::u32 && dtype != DType::u64;
}

std::int64_t sum_operand(const Site& site, DType dtype, ReduceOp op) {
  const std::uint64_t sign_source = op == ReduceOp::avg ? site.shared : site.own;
  const std::int64_t magnitude = budgeted_magnitude(site, sum_budget(dtype));
  return is_signed(dtype) && (sign_source & 1) != 0 ? -magnitude : magnitude;
}

double prod_operand(const Site& site, DType dtype) {
  const std::int64_t budget = exponent_budget(dtype);
  const auto magnitude = static_cast<int>(budgeted_magnitude(site, budget));
  const int exponent = (site.own & 2) != 0 ? -magnitude : magnitude;
  double significand = (site.own & 1) != 0 ? -1 : 1;
  const std::uint64_t carrier = (site.shared >> 32) % static_cast<std::uint64_t>(site.num_ranks);
  if (static_cast<std::uint64_t>(site.rank) == carrier) {
    const int fraction_bits = core::significand_bits(dtype) - 1;
    const std::uint64_t fraction = site.shared & ((std::uint64_t{1} << fraction_bits) - 1);
    significand *= 1 + std::ldexp(static_cast<double>(fraction), -fraction_bits);
  }
  return std::ldexp(significand, exponent);
}

// The bits of a float of this dtype, in the low bytes.
std::uint64_t float_bits(DType dtype, double x) {
  const auto narrow = static_cast<float>(x);
  std::uint64_t bits = 0;
  switch (dtype) {
    case DType::f16:
      return core::to_float16(narrow).bits;
    case DType::bf16:
      return core::to_bfloat16(narrow).bits;
    case DType::f8e4m3:
      return core::to_float8_e4m3(narrow).bits;
    case DType::f8e5m2:
      return core::to_float8_e5m2(narrow).bits;
    case DType::f32:
      std::memcpy(&bits, &narrow, sizeof narrow);
      return bits;
    case DType::f64:
      std::memcpy(&bits, &x, sizeof x);
      return bits;
    default:
      LOCKSTEP_CHECK(false, "not a float");
      return 0;
  }
}

// Any bits, made finite and non-zero: the exponent's top bit is cleared if all of them are set.
std::uint64_t finite_nonzero_bits(DType dtype, std::uint64_t bits) {
  const int total_bits = static_cast<int>(8 * core::size_of(dtype));
  const int fraction_bits = core::significand_bits(dtype) - 1;
  const std::uint64_t sign = std::uint64_t{1} << (total_bits - 1);
  const std::uint64_t exponent_ones = (sign - 1) & ~((std::uint64_t{1} << fraction_bits) - 1);
  if ((bits & exponent_ones) == exponent_ones) bits &= ~(sign >> 1);
  if ((bits & (sign - 1)) == 0) bits |= std::uint64_t{1} << fraction_bits;
  return bits;
}

std::uint64_t operand_bits(const Site& site, DType dtype, ReduceOp op) {
  const bool floating = core::is_floating(dtype);
  switch (op) {
    case ReduceOp::max:
    case ReduceOp::min:
      return floating ? finite_nonzero_bits(dtype, site.own) : site.own;
    case ReduceOp::prod:
      return floating ? float_bits(dtype, prod_operand(site, dtype)) : site.own | 1;
    case ReduceOp::sum:
      if (!floating) return site.own;
      [[fallthrough]];
    case ReduceOp::avg: {
      const std::int64_t value = sum_operand(site, dtype, op);
      return floating ? float_bits(dtype, static_cast<double>(value)) : static_cast<std::uint64_t>(value);
    }
  }
  LOCKSTEP_CHECK(false, "operation out of range");
  return 0;
}

// Low bytes of bits(i) for each position i. Little-endian, as every machine that we build for is.
template <typename Bits>
std::vector<std::byte> pattern_of(DType dtype, std::size_t length, Bits bits) {
  const std::size_t size = core::size_of(dtype);
  std::vector<std::byte> pattern(length * size);
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t value = bits(i);
    std::memcpy(pattern.data() + i * size, &value, size);
  }
  return pattern;
}

std::uint64_t own_random(std::uint64_t seed, int rank, std::size_t i) {
  return core::hash64(seed, static_cast<std::uint64_t>(rank) + 1, i);
}

}  // namespace

std::vector<std::byte> copy_pattern(DType dtype, int rank, std::uint64_t seed, std::size_t length) {
  return pattern_of(dtype, length, [&](std::size_t i) { return own_random(seed, rank, i); });
}

std::vector<std::byte> operand_pattern(DType dtype, ReduceOp op, int rank, int num_ranks, std::uint64_t seed,
                                       std::size_t length) {
  return pattern_of(dtype, length, [&](std::size_t i) {
    return operand_bits({rank, num_ranks, core::hash64(seed, 0, i), own_random(seed, rank, i)}, dtype, op);
  });
}

namespace {

// Primes; the second is used if the first divides the count. Times 8 bytes they fit a core's caches.
constexpr std::int64_t kPeriod = 8191;
constexpr std::int64_t kOtherPeriod = 8179;
// Distance by which block and round move a block's start in the pattern. Two blocks of up to 2,000 ranks never start at
// the same position, nor do the blocks of consecutive rounds.
constexpr std::uint64_t kBlockStride = 1021;
constexpr std::uint64_t kRoundStride = 4002;

std::int64_t largest_block(const Operation& operation) {
  if (!operation.matrix || operation.matrix->counts.empty()) return operation.count;
  return *std::max_element(operation.matrix->counts.begin(), operation.matrix->counts.end());
}

// Calls f(at, pattern_at, size) for each stretch of a block that is contiguous both in the block and in the pattern.
template <typename F>
void for_each_tile(std::size_t block_bytes, std::size_t pattern_bytes, std::size_t phase_bytes, F f) {
  for (std::size_t at = 0, pattern_at = phase_bytes; at < block_bytes; pattern_at = 0) {
    const std::size_t size = std::min(block_bytes - at, pattern_bytes - pattern_at);
    f(at, pattern_at, size);
    at += size;
  }
}

// True if two floats of one sign are at most `ulps` codes apart.
bool within_ulps(const std::byte* a, const std::byte* b, std::size_t size, int ulps) {
  std::uint64_t a_bits = 0;
  std::uint64_t b_bits = 0;
  std::memcpy(&a_bits, a, size);
  std::memcpy(&b_bits, b, size);
  return std::max(a_bits, b_bits) - std::min(a_bits, b_bits) <= static_cast<std::uint64_t>(ulps);
}

// Number of elements of two stretches that differ by more than `ulps`.
std::int64_t differing_elements(const std::byte* found, const std::byte* expected, std::size_t size_bytes,
                                std::size_t element, int ulps) {
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < size_bytes; i += element) {
    if (std::memcmp(found + i, expected + i, element) == 0) continue;
    if (!within_ulps(found + i, expected + i, element, ulps)) ++differing;
  }
  return differing;
}

std::int64_t blocks_end(const std::vector<std::int64_t>& offsets, const Operation& operation) {
  return offsets.back() * static_cast<std::int64_t>(core::size_of(operation.dtype));
}

}  // namespace

std::size_t pattern_period(const Operation& operation) {
  return static_cast<std::size_t>(largest_block(operation) % kPeriod == 0 ? kOtherPeriod : kPeriod);
}

Patterns make_patterns(const Operation& operation, int num_ranks, std::uint64_t seed) {
  LOCKSTEP_CHECK(num_ranks > 0, "no ranks");
  const bool reduces = has_op(operation.kind);
  Patterns patterns{pattern_period(operation), {}, {}};
  patterns.inputs.reserve(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    patterns.inputs.push_back(
        reduces ? operand_pattern(operation.dtype, operation.op, rank, num_ranks, seed, patterns.period)
                : copy_pattern(operation.dtype, rank, seed, patterns.period));
  }
  if (!reduces) return patterns;
  std::vector<std::byte>& reduced = patterns.reduced = patterns.inputs.front();
  for (std::size_t r = 1; r < patterns.inputs.size(); ++r) {
    core::reduce_scalar(operation.dtype, operation.op, reduced.data(), reduced.data(), patterns.inputs[r].data(),
                        patterns.period);
  }
  if (operation.op == core::ReduceOp::avg) {
    core::finish_average(operation.dtype, reduced.data(), patterns.period, num_ranks);
  }
  return patterns;
}

Verifier::Verifier(const Operation& operation, int num_ranks, std::uint64_t seed, int average_ulps)
    : Verifier(operation, std::make_shared<const Patterns>(make_patterns(operation, num_ranks, seed)), seed,
               average_ulps) {}

Verifier::Verifier(const Operation& operation, std::shared_ptr<const Patterns> patterns, std::uint64_t seed,
                   int average_ulps)
    : operation_(operation),
      num_ranks_(static_cast<int>(patterns->inputs.size())),
      seed_(seed),
      average_ulps_(operation.op == core::ReduceOp::avg && core::is_floating(operation.dtype) ? average_ulps : 0),
      patterns_(std::move(patterns)) {
  LOCKSTEP_CHECK(patterns_->period == pattern_period(operation), "patterns of another period");
}

std::size_t Verifier::phase_bytes(int block, std::uint64_t round) const {
  const std::size_t period = patterns_->period;
  const std::uint64_t shift =
      seed_ % period + static_cast<std::uint64_t>(block) * kBlockStride + (round % period) * kRoundStride;
  return static_cast<std::size_t>(shift % period) * core::size_of(operation_.dtype);
}

std::vector<Verifier::Piece> Verifier::input_pieces(int rank, std::uint64_t round) const {
  const std::vector<std::int64_t> offsets = input_offsets(operation_, num_ranks_, rank);
  const std::size_t size = core::size_of(operation_.dtype);
  std::vector<Piece> pieces;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    pieces.push_back({static_cast<std::size_t>(offsets[b]) * size,
                      static_cast<std::size_t>(offsets[b + 1] - offsets[b]) * size,
                      &patterns_->inputs[static_cast<std::size_t>(rank)], phase_bytes(static_cast<int>(b), round)});
  }
  return pieces;
}

std::vector<Verifier::Piece> Verifier::output_pieces(int rank, std::uint64_t round) const {
  const std::vector<std::int64_t> offsets = output_offsets(operation_, num_ranks_, rank);
  const std::size_t size = core::size_of(operation_.dtype);
  std::vector<Piece> pieces;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    const Origin origin = origin_of(operation_.kind, num_ranks_, operation_.root, rank, static_cast<int>(b));
    pieces.push_back({static_cast<std::size_t>(offsets[b]) * size,
                      static_cast<std::size_t>(offsets[b + 1] - offsets[b]) * size,
                      origin.reduced ? &patterns_->reduced : &patterns_->inputs[static_cast<std::size_t>(origin.rank)],
                      phase_bytes(origin.block, round)});
  }
  return pieces;
}

void Verifier::fill_input(int rank, std::uint64_t round, void* input) const {
  for (const Piece& piece : input_pieces(rank, round)) {
    std::byte* const block = static_cast<std::byte*>(input) + piece.offset_bytes;
    for_each_tile(piece.size_bytes, piece.pattern->size(), piece.phase_bytes,
                  [&](std::size_t at, std::size_t pattern_at, std::size_t size) {
                    std::memcpy(block + at, piece.pattern->data() + pattern_at, size);
                  });
  }
}

void Verifier::fill_poison(int rank, std::uint64_t round, void* output) const {
  for (const Piece& piece : output_pieces(rank, round)) {
    std::byte* const block = static_cast<std::byte*>(output) + piece.offset_bytes;
    for_each_tile(piece.size_bytes, piece.pattern->size(), piece.phase_bytes,
                  [&](std::size_t at, std::size_t pattern_at, std::size_t size) {
                    const std::byte* const expected = piece.pattern->data() + pattern_at;
                    for (std::size_t i = 0; i < size; ++i) block[at + i] = ~expected[i];
                  });
  }
}

std::int64_t Verifier::count_wrong(int rank, std::uint64_t round, const void* output) const {
  std::int64_t wrong = 0;
  for (const Piece& piece : output_pieces(rank, round)) {
    wrong += wrong_elements(piece, static_cast<const std::byte*>(output) + piece.offset_bytes);
  }
  return wrong;
}

std::int64_t Verifier::wrong_elements(const Piece& piece, const std::byte* block) const {
  const std::size_t element = core::size_of(operation_.dtype);
  std::int64_t wrong = 0;
  for_each_tile(piece.size_bytes, piece.pattern->size(), piece.phase_bytes,
                [&](std::size_t at, std::size_t pattern_at, std::size_t size) {
                  const std::byte* const expected = piece.pattern->data() + pattern_at;
                  if (std::memcmp(block + at, expected, size) == 0) return;
                  wrong += differing_elements(block + at, expected, size, element, average_ulps_);
                });
  return wrong;
}

std::int64_t input_bytes(const Operation& operation, int num_ranks, int rank) {
  return blocks_end(input_offsets(operation, num_ranks, rank), operation);
}

std::int64_t output_bytes(const Operation& operation, int num_ranks, int rank) {
  return blocks_end(output_offsets(operation, num_ranks, rank), operation);
}

InPlaceLayout in_place_layout(const Operation& operation, int num_ranks, int rank) {
  const std::vector<std::int64_t> inputs = input_offsets(operation, num_ranks, rank);
  const std::vector<std::int64_t> outputs = output_offsets(operation, num_ranks, rank);
  const InPlaceAlias alias = in_place_alias(operation.kind, num_ranks, operation.root, rank);
  // A rank without input (output) still has the offset 0 of it.
  const auto begin = [](const std::vector<std::int64_t>& offsets, int block) {
    return offsets.size() > 1 ? offsets.at(static_cast<std::size_t>(block)) : 0;
  };
  const auto size = static_cast<std::int64_t>(core::size_of(operation.dtype));
  const std::int64_t shift = (begin(outputs, alias.output_block) - begin(inputs, alias.input_block)) * size;
  InPlaceLayout layout{0, std::max<std::int64_t>(shift, 0), std::max<std::int64_t>(-shift, 0)};
  layout.buffer_bytes =
      std::max(layout.input_at + blocks_end(inputs, operation), layout.output_at + blocks_end(outputs, operation));
  return layout;
}

}  // namespace lockstep::collectives
