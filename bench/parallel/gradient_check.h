// Whether gradients are what they must be: bit for bit those of another run, and near those of one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/parallel/gradient_bounds.h"

namespace lockstep::parallel_bench {

// Elements whose bits differ. Of equal length.
std::int64_t differing(std::span<const float> found, std::span<const float> wanted);

// The sum of what each rank's share of the batch gives, made by one rank, one share after the other.
class SerialSum {
 public:
  // Gradients are those of all buckets, one after the other, with their padding.
  SerialSum(std::span<const std::int64_t> bucket_elems, const GradientWire& wire);
  void add(std::span<const float> gradients);

  struct Found {
    std::int64_t beyond = 0;    // elements further from the sum than the wire's roundings explain (gradient_bounds.h)
    double most_of_bound = 0;   // the largest part of its bound that an element is off by
    double relative_error = 0;  // |found - sum| / |sum|, Euclidean; 0 where the sum is
  };
  Found compare(std::span<const float> found) const;

 private:
  std::vector<BucketSums> buckets_;
};

}  // namespace lockstep::parallel_bench
