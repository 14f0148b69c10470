// How far a sum of gradients may be from the exact one after its way between ranks. Bounds are computed from the
// gradients of all ranks; docs/metrics.md derives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "parallel/compress/compress.h"

namespace lockstep::parallel_bench {

// As what gradients travel.
struct GradientWire {
  core::DType dtype = core::DType::f32;  // in which they are kept, and summed if they are not compressed
  parallel::Compression compression = parallel::Compression::none;
};

// The sum of all ranks' shares of a bucket, element by element, in f64: its own roundings do not count.
class BucketSums {
 public:
  explicit BucketSums(std::int64_t elems);
  void add(std::span<const float> share);

  std::span<const double> sums() const { return sums_; }
  // For each element, the most by which the reduced value may differ from its sum.
  std::vector<double> bounds(const GradientWire& wire) const;

 private:
  std::vector<double> bf16_bounds() const;
  std::vector<double> int8_bounds() const;

  std::size_t shares_ = 0;
  std::vector<double> sums_;
  std::vector<double> sums_of_sizes_;  // of |share|
  std::vector<double> code_errors_;    // of a block: by how much int8 codes of all shares together may be off
};

}  // namespace lockstep::parallel_bench
