#include "bench/parallel/gradient_bounds.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/quantize/quantize.h"

namespace lockstep::parallel_bench {
namespace {

using core::DType;
using parallel::Compression;

constexpr auto kBlock = static_cast<std::size_t>(parallel::kCompressionBlock);

// Half a scale, the block's largest / 127, and what four f32 roundings of numbers up to 127 scales add: of 127 /
// largest and its product with x, of the scale and its product with the code. Blocks that small that they are taken for
// zeros lose all.
double code_error(double largest) {
  constexpr double kScales = 0.5 + 0x1p-15;
  return std::max(kScales * largest / 127, std::min(largest, double{kernels::kSmallestLargest}));
}

template <class SizeOf>
double largest_of_block(std::size_t block, std::size_t elems, const SizeOf& size_of) {
  double largest = 0;
  for (std::size_t i = block * kBlock; i < std::min(elems, (block + 1) * kBlock); ++i) {
    largest = std::max(largest, size_of(i));
  }
  return largest;
}

}  // namespace

BucketSums::BucketSums(std::int64_t elems)
    : sums_(static_cast<std::size_t>(elems)),
      sums_of_sizes_(sums_.size()),
      code_errors_((sums_.size() + kBlock - 1) / kBlock) {}

void BucketSums::add(std::span<const float> share) {
  LOCKSTEP_CHECK(share.size() == sums_.size(), "a share is a bucket");
  const auto size_of = [share](std::size_t i) { return std::fabs(double{share[i]}); };
  for (std::size_t i = 0; i < share.size(); ++i) {
    sums_[i] += double{share[i]};
    sums_of_sizes_[i] += size_of(i);
  }
  for (std::size_t block = 0; block < code_errors_.size(); ++block) {
    code_errors_[block] += code_error(largest_of_block(block, share.size(), size_of));
  }
  ++shares_;
}

std::vector<double> BucketSums::bounds(const GradientWire& wire) const {
  if (wire.compression == Compression::bf16) return bf16_bounds();
  if (wire.compression == Compression::int8) return int8_bounds();
  std::vector<double> bounds = sums_of_sizes_;
  for (double& bound : bounds) bound *= core::sum_tolerance(wire.dtype, shares_);
  return bounds;
}

// Each addend is rounded to bf16, and so is each partial sum that a pass leaves: at most all but the first addend, in
// any order; the last one is the sum itself. Within a pass f32 is added up.
std::vector<double> BucketSums::bf16_bounds() const {
  const double unit = std::ldexp(1.0, -core::significand_bits(DType::bf16));
  const auto shares = static_cast<double>(shares_);
  const double before = std::pow(1 + unit, shares - 1) * (1 + core::sum_tolerance(DType::f32, shares_)) - 1;
  const double lost_to_zero = 2 * shares * 0x1p-126;  // below the smallest normal number
  std::vector<double> bounds;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double so_far = before * sums_of_sizes_[i];
    bounds.push_back(so_far + unit * (std::fabs(sums_[i]) + so_far) + lost_to_zero);
  }
  return bounds;
}

// Codes of all shares, their sum in f32, the code of the sum.
std::vector<double> BucketSums::int8_bounds() const {
  const double of_sum = core::sum_tolerance(DType::f32, shares_);
  std::vector<double> bounds(sums_.size());
  for (std::size_t block = 0; block < code_errors_.size(); ++block) {
    const auto before = [&](std::size_t i) {
      return code_errors_[block] + of_sum * (sums_of_sizes_[i] + code_errors_[block]);
    };
    const double of_code = code_error(
        largest_of_block(block, sums_.size(), [&](std::size_t i) { return std::fabs(sums_[i]) + before(i); }));
    for (std::size_t i = block * kBlock; i < std::min(sums_.size(), (block + 1) * kBlock); ++i) {
      bounds[i] = before(i) + of_code;
    }
  }
  return bounds;
}

}  // namespace lockstep::parallel_bench
