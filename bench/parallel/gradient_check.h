// Checks gradients: bit for bit against another run, and within bounds against the sum that one rank computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/parallel/gradient_bounds.h"

namespace lockstep::parallel_bench {

// Returns the number of elements whose bits differ. Both have equal length.
std::int64_t differing(std::span<const float> found, std::span<const float> wanted);

// Sum of the gradients of every rank's share of the batch, computed by one rank, one share after the other.
class SerialSum {
 public:
  // Takes the gradients of all buckets, one after the other, with their padding.
  SerialSum(std::span<const std::int64_t> bucket_elems, const GradientWire& wire);
  void add(std::span<const float> gradients);

  struct Found {
    std::int64_t beyond =
        0;  // elements with a larger error than the rounding of the wire format explains (gradient_bounds.h)
    double most_of_bound = 0;   // largest error of an element as a fraction of its bound
    double relative_error = 0;  // |found - sum| / |sum|, Euclidean norms; 0 if the sum is 0
  };
  Found compare(std::span<const float> found) const;

 private:
  std::vector<BucketSums> buckets_;
};

}  // namespace lockstep::parallel_bench
