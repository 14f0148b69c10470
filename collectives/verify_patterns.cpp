#include "collectives/verify_patterns.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/narrow_float.h"
#include "core/random.h"

namespace lockstep::collectives {
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

}  // namespace lockstep::collectives
