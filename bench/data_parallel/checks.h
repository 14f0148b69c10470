// Checks of reduced gradients: their error and its bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "workload/compression.h"

namespace lockstep::parallel_bench {

// Bounds on the error of a reduced gradient against the exact sum. They are computed from the gradients of all ranks;
// docs/metrics.md derives them.

// The encoding of gradients on the wire.
struct GradientWire {
  core::DType dtype =
      core::DType::f32;  // dtype in which gradients are kept, and in which they are summed unless they are compressed
  workload::Compression compression = {};
};

// Sum of all ranks' shares of a bucket, element by element, in f64, whose rounding is negligible.
class BucketSums {
 public:
  BucketSums(std::int64_t elems, const GradientWire& wire);
  void add(std::span<const float> share);

  std::span<const double> sums() const { return sums_; }
  // For each element, the largest allowed difference between the reduced value and its sum, if no error feedback is
  // pending.
  std::vector<double> bounds() const;

 private:
  std::vector<double> bf16_bounds() const;
  std::vector<double> code_bounds() const;
  // Bounds these errors by the sum itself: an element that was not drawn is lost entirely, and a low-rank product is a
  // projection of the sum.
  std::vector<double> random_bounds() const;
  std::vector<double> low_rank_bounds() const;
  double code_error(double largest) const;

  GradientWire wire_;
  std::size_t shares_ = 0;
  std::vector<double> sums_;
  std::vector<double> sums_of_sizes_;  // sums of |share|
  std::vector<double> code_errors_;    // per block: error of the codes of all shares together
  double unsent_ = 0;                  // largest element that a share does not send, summed over shares
};

// Checks gradients: bit for bit against another run, and within bounds against the sum that one rank computes.

// Returns the number of elements whose bits differ. Both have equal length.
std::int64_t differing(std::span<const float> found, std::span<const float> wanted);

// Sum of the gradients of every rank's share of the batch, computed by one rank, share by share.
class SerialSum {
 public:
  // Takes the concatenated gradients of all buckets, with their padding.
  SerialSum(std::span<const std::int64_t> bucket_elems, const GradientWire& wire);
  void add(std::span<const float> gradients);

  struct Found {
    std::int64_t beyond = 0;    // elements with a larger error than the rounding of the wire format explains
    double most_of_bound = 0;   // largest error of an element as a fraction of its bound
    double relative_error = 0;  // |found - sum| / |sum|, Euclidean norms; 0 if the sum is 0
  };
  Found compare(std::span<const float> found) const;

 private:
  std::vector<BucketSums> buckets_;
};

}  // namespace lockstep::parallel_bench
