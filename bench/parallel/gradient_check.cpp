#include "bench/parallel/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace lockstep::parallel_bench {

std::int64_t differing(std::span<const float> found, std::span<const float> wanted) {
  LOCKSTEP_CHECK(found.size() == wanted.size(), "as many elements");
  std::int64_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    count += std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]) ? 1 : 0;
  }
  return count;
}

SerialSum::SerialSum(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {
  const auto elems = static_cast<std::size_t>(std::accumulate(extents_.begin(), extents_.end(), std::int64_t{0}));
  sum_.resize(elems);
  sum_of_sizes_.resize(elems);
}

void SerialSum::add(std::span<const float> gradients) {
  LOCKSTEP_CHECK(gradients.size() == sum_.size(), "all parameters' gradients");
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    sum_[i] += static_cast<double>(gradients[i]);
    sum_of_sizes_[i] += std::fabs(static_cast<double>(gradients[i]));
  }
  ++shares_;
}

std::int64_t SerialSum::beyond_bound(std::span<const float> found, core::DType gradient, core::DType compute) const {
  LOCKSTEP_CHECK(found.size() == sum_.size(), "all parameters' gradients");
  constexpr double kRoundings = 128;
  const double of_sum = core::sum_tolerance(gradient, shares_);
  const double of_kernels = kRoundings * std::ldexp(1.0, -core::significand_bits(compute));
  std::int64_t count = 0;
  std::size_t begin = 0;
  for (const std::int64_t extent : extents_) {
    const std::size_t end = begin + static_cast<std::size_t>(extent);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(sum_[i]));
    for (std::size_t i = begin; i < end; ++i) {
      const double bound = of_sum * sum_of_sizes_[i] + of_kernels * largest;
      // Not: further than. A NaN is beyond every bound.
      count += std::fabs(static_cast<double>(found[i]) - sum_[i]) <= bound ? 0 : 1;
    }
    begin = end;
  }
  return count;
}

}  // namespace lockstep::parallel_bench
