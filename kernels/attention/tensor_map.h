// A tensor in device memory of which the copy engine (TMA) brings boxes into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_call.h"
#include "core/dtype.h"

namespace lockstep::kernels {

// [batches, rows, heads, columns], a row every row_bytes. A box is `box_rows` rows of 64 columns of one head. Rows past
// the end of a sequence are zeros. Elements have 16 bits; addresses and strides are multiples of 16 bytes.
struct HeadTensor {
  const void* data;
  std::int64_t columns;
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t batches;
  std::int64_t row_bytes;
  int box_rows;
};

// A HeadTensor in the form that the device reads: an argument of a kernel.
struct alignas(64) TensorMap {
  std::byte bytes[128];
};

// By the driver, which is asked for at run time (cuTensorMapEncodeTiled); throws core::Error(cuda) if it has no such
// call or refuses the tensor.
TensorMap encode_tensor_map(const HeadTensor& tensor, core::DType dtype, core::CudaPlace place);

}  // namespace lockstep::kernels
