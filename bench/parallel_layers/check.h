// Whether a rank's results are what one rank alone gets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/parallel_layers/nodes.h"
#include "bench/parallel_layers/shape.h"

namespace lockstep::layer_bench {

using Reference = std::map<std::string, std::vector<float>>;  // whole, by name

// All results of the layer on one rank, which has all of it.
Reference reference_of(BlockKind kind, const Shape& shape, int threads);
// Likewise of the layer that grids share: without biases.
Reference grid_reference_of(BlockKind kind, const Shape& shape, int threads);

// How far results on `ranks` ranks may be from one rank's, as a part of the largest element:
//   tolerance(f32, n) + tolerance(dtype, ranks + 2 r)
// with core::sum_tolerance: n terms in the longest sum, which is made in another order; ranks terms that are added up
// in the dtype, and r roundings to it on the way, on either side.
double allowed_difference(BlockKind kind, const Shape& shape, int ranks);

// Elements of a share that are further away; a NaN is. Padding, which is in no run, has to be zero.
std::int64_t wrong_elems(const Result& result, workload::TensorPlace place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed);

// Elements whose bits differ. Of equal length.
std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted);

}  // namespace lockstep::layer_bench
