// Checks a rank's results against those of one rank alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/shape.h"

namespace lockstep::tp_linear {

using Reference = std::map<std::string, std::vector<float>>;  // whole tensors, by name

// All results of the layer on one rank that has all of it.
Reference reference_of(BlockKind kind, const Shape& shape, int threads);
// The same for the layer that grids share: without biases.
Reference grid_reference_of(BlockKind kind, const Shape& shape, int threads);

// Largest allowed difference of results on `ranks` ranks from one rank's, relative to the largest element:
// tolerance(f32, n) + tolerance(dtype, ranks + 2 r) with core::sum_tolerance, for n terms in the longest sum, which is
// in another order, `ranks` terms that are summed in the dtype, and r roundings to it before, on either side.
double allowed_difference(BlockKind kind, const Shape& shape, int ranks);

// Number of elements of a share whose difference is larger, NaN included. Padding must be zero.
std::int64_t wrong_elems(const Result& result, workload::TensorPlace place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed);

// Number of elements whose bits differ. Both have equal length.
std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted);

}  // namespace lockstep::tp_linear
