// The stand-in's form of a tensor map: 128 bytes that its cuTensorMapEncodeTiled() writes, and that an executor of
// kernels reads where the hardware would read NVIDIA's (undocumented) form. Terms are those of the CUDA Driver API,
// "Tensor Map Object Management", and values those of its enumerations.
#pragma once

#include <cstdint>

namespace lockstep::cuda_stand_in {

struct alignas(64) EncodedTensorMap {
  static constexpr std::uint64_t kMark = 0x70616d20'736e6574;  // "tens map": these bytes were encoded

  std::uint64_t mark;
  std::uint64_t address;           // the first element's
  std::uint32_t sizes[5];          // elements, the innermost dimension first; at most 2^32, which is written as 0
  std::uint16_t box[5];            // elements, at most 256
  std::uint8_t steps[5];           // elementStrides, 1 to 8
  std::uint8_t rank;               // dimensions, 1 to 5
  std::uint8_t data_type;          // CUtensorMapDataType
  std::uint8_t interleave;         // CUtensorMapInterleave
  std::uint8_t swizzle;            // CUtensorMapSwizzle
  std::uint8_t nan_out_of_bounds;  // CUtensorMapFloatOOBfill: 0 fills with zeros
  std::uint64_t strides_bytes[4];  // from the second dimension on; multiples of 16, less than 2^40
};
static_assert(sizeof(EncodedTensorMap) == 128);

}  // namespace lockstep::cuda_stand_in
