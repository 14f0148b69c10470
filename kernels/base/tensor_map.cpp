#include "kernels/base/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr unsigned kCudaOfTheCall = 12000;
constexpr unsigned kPanelColumns = 64;  // 128 bytes, the width of the swizzle

decltype(&cuTensorMapEncodeTiled) encode_call(core::CudaCaller place) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  core::check_cuda(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kCudaOfTheCall, cudaEnableDefault, &answer),
      "cuTensorMapEncodeTiled", place);
  if (answer != cudaDriverEntryPointSuccess) {
    throw core::Error(core::Failure::cuda,
                      "the CUDA driver has no cuTensorMapEncodeTiled, which kernels by wgmma need; allowed: driver "
                      "525 or later, or the default kernels");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

}  // namespace

TensorMap encode_tensor_map(const HeadTensor& tensor, core::DType dtype, core::CudaCaller place) {
  const auto head_bytes = static_cast<std::uint64_t>(2 * tensor.columns);
  const auto row_bytes = static_cast<std::uint64_t>(tensor.row_bytes);
  const auto rows = static_cast<std::uint64_t>(tensor.rows);
  const std::array<std::uint64_t, 4> sizes{static_cast<std::uint64_t>(tensor.columns),
                                           static_cast<std::uint64_t>(tensor.heads), rows,
                                           static_cast<std::uint64_t>(tensor.batches)};
  const std::array<std::uint64_t, 3> strides_bytes{head_bytes, row_bytes, rows * row_bytes};
  const std::array<std::uint32_t, 4> box{kPanelColumns, 1, static_cast<std::uint32_t>(tensor.box_rows), 1};
  const std::array<std::uint32_t, 4> every{1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_call(place)(
      &map, dtype == core::DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(tensor.data), sizes.data(), strides_bytes.data(),
      box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw core::Error(
        core::Failure::cuda,
        fmt::format("cuTensorMapEncodeTiled refused a tensor of {} x {} x {} x {} on rank {}, CUDA device "
                    "{}: error {}",
                    tensor.batches, tensor.rows, tensor.heads, tensor.columns, place.rank, place.device,
                    static_cast<int>(result)));
  }
  TensorMap encoded;
  static_assert(sizeof encoded == sizeof map);
  std::memcpy(&encoded, &map, sizeof encoded);
  return encoded;
}

}  // namespace lockstep::kernels
