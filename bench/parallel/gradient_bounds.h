// How far a sum of gradients may be from the exact one after its way between ranks. Bounds are computed from the
// gradients of all ranks; docs/metrics.md derives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "workload/compression.h"

namespace lockstep::parallel_bench {

// As what gradients travel.
struct GradientWire {
  core::DType dtype = core::DType::f32;  // in which they are kept, and summed if they are not compressed
  workload::Compression compression = {};
};

// The sum of all ranks' shares of a bucket, element by element, in f64: its own roundings do not count.
class BucketSums {
 public:
  BucketSums(std::int64_t elems, const GradientWire& wire);
  void add(std::span<const float> share);

  std::span<const double> sums() const { return sums_; }
  // For each element, the most by which the reduced value may differ from its sum, where nothing is owed from before.
  std::vector<double> bounds() const;

 private:
  std::vector<double> bf16_bounds() const;
  std::vector<double> code_bounds() const;
  // The sum itself bounds these errors: an element that was not drawn is lost whole, and a product of low rank is the
  // sum's projection.
  std::vector<double> random_bounds() const;
  std::vector<double> low_rank_bounds() const;
  double code_error(double largest) const;

  GradientWire wire_;
  std::size_t shares_ = 0;
  std::vector<double> sums_;
  std::vector<double> sums_of_sizes_;  // of |share|
  std::vector<double> code_errors_;    // of a block: by how much the codes of all shares together may be off
  double unsent_ = 0;                  // of the largest elements that shares do not send: their sum over shares
};

}  // namespace lockstep::parallel_bench
