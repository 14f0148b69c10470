#include "bench/parallel/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace lockstep::parallel_bench {

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
