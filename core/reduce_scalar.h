// The reduction of two elements for every dtype and operation: the definition shared by the references of kernels and
// the verification of collectives. Plain loops, not optimised.
//
//   integers      sum and prod wrap around (modulo 2^bits), also the signed ones
//   f32, f64      one IEEE operation
//   f16 bf16 fp8  both converted to float, one float operation, rounded back (ties to even)
//   max, min      a < b ? b : a  and  b < a ? b : a
//   avg           combines like sum; finish_average() divides the whole sum once by the number of ranks:
//                 f64 in double, other floats in float and then rounded to the dtype, integers truncating as C does
#pragma once

#include <cstddef>

#include "core/dtype.h"

namespace lockstep::core {

// Sets destination[i] = a[i] (op) b[i]. The pointers are aligned to the element and may be equal.
void reduce_scalar(DType dtype, ReduceOp op, void* destination, const void* a, const void* b, std::size_t count);

// Sets data[i] = data[i] / num_ranks.
void finish_average(DType dtype, void* data, std::size_t count, int num_ranks);

}  // namespace lockstep::core
