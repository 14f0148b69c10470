// The stand-in's cuTensorMapEncodeTiled().
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda_stand_in {

// Has the driver's parameters; enumerations are ints. Writes an EncodedTensorMap (tensor_map.h). Returns 1
// (CUDA_ERROR_INVALID_VALUE) for what the driver refuses, with the reason in last_refusal().
int encode_tiled(void* map, int data_type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                 const std::uint64_t* strides_bytes, const std::uint32_t* box, const std::uint32_t* steps,
                 int interleave, int swizzle, int l2_promotion, int out_of_bounds);

}  // namespace lockstep::cuda_stand_in
