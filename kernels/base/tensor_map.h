// A tensor in device memory from which the copy engine (TMA) loads boxes into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_call.h"
#include "core/dtype.h"

namespace lockstep::kernels {

// A tensor [batches, rows, heads, columns] with `row_bytes` from row to row. A box is `box_rows` rows of 64 columns of
// one head. Rows past the end of a sequence are zeros. Elements have 16 bits; addresses and strides are multiples of 16
// bytes.
struct HeadTensor {
  const void* data;
  std::int64_t columns;
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t batches;
  std::int64_t row_bytes;
  int box_rows;
};

// A HeadTensor in the form that the device reads, as an argument of a kernel.
struct alignas(64) TensorMap {
  std::byte bytes[128];
};

// Encoded by the driver, whose function is looked up at run time (cuTensorMapEncodeTiled). Throws core::Error(cuda) if
// the driver lacks it or refuses the tensor.
TensorMap encode_tensor_map(const HeadTensor& tensor, core::DType dtype, core::CudaCaller place);

}  // namespace lockstep::kernels
