#include "bench/data_parallel/checks.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "kernels/quantize/quantize.h"
#include "parallel/compress/compress.h"

namespace lockstep::parallel_bench {
namespace {

using core::DType;
using workload::Compression;
using workload::CompressionWay;

constexpr auto kBlock = static_cast<std::size_t>(workload::CodeShape().block);

// Returns the largest magnitude among the elements that a share does not send.
double largest_unsent(std::span<const float> share, const Compression& compression) {
  std::vector<double> sizes;
  sizes.reserve(share.size());
  for (const float x : share) sizes.push_back(std::fabs(double{x}));
  const auto sent = static_cast<std::size_t>(compression.sent_of(static_cast<std::int64_t>(share.size())));
  const double at = compression.way == CompressionWay::threshold ? compression.at : 0;
  if (sent == sizes.size()) return at;
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(sent), sizes.end(), std::greater<>());
  return std::max(at, sizes[sent]);
}

bool sends_largest(CompressionWay way) {
  return way == CompressionWay::topk || way == CompressionWay::threshold;
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

BucketSums::BucketSums(std::int64_t elems, const GradientWire& wire)
    : wire_(wire),
      sums_(static_cast<std::size_t>(elems)),
      sums_of_sizes_(sums_.size()),
      code_errors_(workload::sends_codes(wire.compression.way) ? (sums_.size() + kBlock - 1) / kBlock : 0) {}

// The format's error, plus the error of four f32 roundings of codes and scales. Blocks small enough to be taken for
// zeros lose everything.
double BucketSums::code_error(double largest) const {
  const double of_format = parallel::format_of(wire_.compression.way).most_error * (1 + 0x1p-14);
  return std::max(of_format * largest, std::min(largest, double{kernels::kSmallestLargest}));
}

void BucketSums::add(std::span<const float> share) {
  LOCKSTEP_CHECK(share.size() == sums_.size(), "a share has the size of a bucket");
  const auto size_of = [share](std::size_t i) { return std::fabs(double{share[i]}); };
  for (std::size_t i = 0; i < share.size(); ++i) {
    sums_[i] += double{share[i]};
    sums_of_sizes_[i] += size_of(i);
  }
  for (std::size_t block = 0; block < code_errors_.size(); ++block) {
    code_errors_[block] += code_error(largest_of_block(block, share.size(), size_of));
  }
  if (sends_largest(wire_.compression.way)) unsent_ += largest_unsent(share, wire_.compression);
  ++shares_;
}

std::vector<double> BucketSums::bounds() const {
  const CompressionWay way = wire_.compression.way;
  if (way == CompressionWay::bf16) return bf16_bounds();
  if (way == CompressionWay::randomk) return random_bounds();
  if (way == CompressionWay::powersgd) return low_rank_bounds();
  if (workload::sends_codes(way)) return code_bounds();
  std::vector<double> bounds = sums_of_sizes_;
  for (double& bound : bounds) bound = bound * core::sum_tolerance(wire_.dtype, shares_) + unsent_;
  return bounds;
}

std::vector<double> BucketSums::random_bounds() const {
  std::vector<double> bounds;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    bounds.push_back(std::fabs(sums_[i]) + sums_of_sizes_[i] * core::sum_tolerance(wire_.dtype, shares_));
  }
  return bounds;
}

std::vector<double> BucketSums::low_rank_bounds() const {
  constexpr double kOfProducts = 1e-3;  // relative error of the norm from f32 products of long rows
  double squares = 0;
  for (const double sum : sums_) squares += sum * sum;
  return std::vector<double>(sums_.size(), std::sqrt(squares) * (1 + kOfProducts));
}

// Each addend is rounded to bf16, and so is each partial sum between passes: at most all but the first addend, in any
// order; the last partial sum is the sum itself. Within a pass sums are in f32.
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

// Encoding error of all shares, of their sum in f32, and of the sum's code.
std::vector<double> BucketSums::code_bounds() const {
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

std::int64_t differing(std::span<const float> found, std::span<const float> wanted) {
  LOCKSTEP_CHECK(found.size() == wanted.size(), "both have the same number of elements");
  std::int64_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    count += std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]) ? 1 : 0;
  }
  return count;
}

SerialSum::SerialSum(std::span<const std::int64_t> bucket_elems, const GradientWire& wire) {
  for (const std::int64_t elems : bucket_elems) buckets_.emplace_back(elems, wire);
}

void SerialSum::add(std::span<const float> gradients) {
  for (BucketSums& bucket : buckets_) {
    bucket.add(gradients.first(bucket.sums().size()));
    gradients = gradients.subspan(bucket.sums().size());
  }
  LOCKSTEP_CHECK(gradients.empty(), "gradients of all buckets");
}

SerialSum::Found SerialSum::compare(std::span<const float> found) const {
  Found result;
  double errors = 0;
  double squares = 0;
  for (const BucketSums& bucket : buckets_) {
    const std::vector<double> bounds = bucket.bounds();
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const double error = std::fabs(double{found[i]} - bucket.sums()[i]);
      // The comparison is written so that a NaN is beyond every bound.
      result.beyond += error <= bounds[i] ? 0 : 1;
      errors += error * error;
      squares += bucket.sums()[i] * bucket.sums()[i];
      if (error > 0) result.most_of_bound = std::max(result.most_of_bound, error / bounds[i]);
    }
    found = found.subspan(bounds.size());
  }
  LOCKSTEP_CHECK(found.empty(), "gradients of all buckets");
  if (squares > 0) result.relative_error = std::sqrt(errors / squares);
  return result;
}

}  // namespace lockstep::parallel_bench
