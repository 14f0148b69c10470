// Whether gradients are what they must be: bit for bit those of another run, and near those of one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"

namespace lockstep::parallel_bench {

// Elements whose bits differ. Of equal length.
std::int64_t differing(std::span<const float> found, std::span<const float> wanted);

// The sum of what each rank's share of the batch gives, made by one rank, one share after the other; in f64, so that
// its own roundings do not count.
class SerialSum {
 public:
  // `extents`: elements of each parameter, one after the other.
  explicit SerialSum(std::vector<std::int64_t> extents);
  void add(std::span<const float> gradients);

  // Elements further from the sum than
  //   tolerance(gradient, n) sum |g_d| + 128 u max |g|
  // Of the first, n is the number of shares: any order of their sum in the gradients' dtype (core::sum_tolerance). Of
  // the second, u is half a unit in the last place of the compute dtype, and the maximum is over the parameter: a
  // rank's kernels may sum in another order than another's, as each chooses its products' implementation by measurement
  // (the bound of the model's own tests, trainer/model).
  std::int64_t beyond_bound(std::span<const float> found, core::DType gradient, core::DType compute) const;

 private:
  std::vector<std::int64_t> extents_;
  std::size_t shares_ = 0;
  std::vector<double> sum_;
  std::vector<double> sum_of_sizes_;
};

}  // namespace lockstep::parallel_bench
