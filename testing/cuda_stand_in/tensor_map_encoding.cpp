#include "testing/cuda_stand_in/tensor_map_encoding.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "testing/cuda_stand_in/refused.h"
#include "testing/cuda_stand_in/runtime.h"
#include "testing/cuda_stand_in/tensor_map.h"

namespace lockstep::cuda_stand_in {
namespace {

// The arguments of one call; the dimensions have the index of their arrays in the driver's call.
struct Tiled {
  int data_type;
  std::uint32_t rank;
  std::uint64_t address;
  const std::uint64_t* sizes;
  const std::uint64_t* strides_bytes;
  const std::uint32_t* box;
  const std::uint32_t* steps;
  int interleave;
  int swizzle;
  int l2_promotion;
  int out_of_bounds;
};

void need(bool holds, const std::string& otherwise) {
  if (!holds) throw Refused(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled: " + otherwise);
}

std::uint64_t bytes_of(int data_type) {
  switch (data_type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 4;
  }
}

bool is_floating(int data_type) {
  return data_type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && data_type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

// Bytes of a row of the box that a swizzle allows; 0 if any.
std::uint64_t span_bytes(int swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    default:
      return 128;
  }
}

void check_enumerations(const Tiled& t) {
  need(t.data_type >= 0 && t.data_type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
       fmt::format("data type {}; the stand-in knows 0 to {}", t.data_type,
                   static_cast<int>(CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ)));
  need(t.interleave >= 0 && t.interleave <= CU_TENSOR_MAP_INTERLEAVE_32B, "unknown interleave");
  need(t.swizzle >= 0 && t.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B, "unknown swizzle");
  need(t.l2_promotion >= 0 && t.l2_promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B, "unknown L2 promotion");
  need(t.out_of_bounds == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
           (t.out_of_bounds == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && is_floating(t.data_type)),
       "NaN out of bounds needs a floating-point type");
  need(t.interleave != CU_TENSOR_MAP_INTERLEAVE_32B || t.swizzle == CU_TENSOR_MAP_SWIZZLE_32B,
       "interleave of 32 bytes needs a swizzle of 32 bytes");
}

void check_memory(const Tiled& t) {
  need(t.rank >= 1 && t.rank <= 5, fmt::format("{} dimensions; allowed: 1 to 5", t.rank));
  need(t.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE || t.rank >= 3, "an interleaved tensor needs 3 dimensions");
  const std::uint64_t unit = t.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
  need(t.address % unit == 0, fmt::format("the address is no multiple of {} bytes", unit));
  for (std::uint32_t i = 0; i < t.rank; ++i) {
    need(t.sizes[i] >= 1 && t.sizes[i] <= std::uint64_t{1} << 32,
         fmt::format("dimension {} has {} elements; allowed: 1 to 2^32", i, t.sizes[i]));
  }
  for (std::uint32_t i = 0; i + 1 < t.rank; ++i) {
    need(t.strides_bytes[i] % unit == 0 && t.strides_bytes[i] < std::uint64_t{1} << 40,
         fmt::format("stride {} is {} bytes; allowed: multiples of {} below 2^40", i, t.strides_bytes[i], unit));
  }
}

void check_box(const Tiled& t) {
  for (std::uint32_t i = 0; i < t.rank; ++i) {
    need(t.box[i] >= 1 && t.box[i] <= 256,
         fmt::format("the box has {} elements in dimension {}; allowed: 1 to 256", t.box[i], i));
    need(t.steps[i] >= 1 && t.steps[i] <= 8, fmt::format("step {} in dimension {}; allowed: 1 to 8", t.steps[i], i));
  }
  if (t.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return;
  const std::uint64_t row_bytes = t.box[0] * bytes_of(t.data_type);
  need(row_bytes % 16 == 0, fmt::format("a row of the box has {} bytes; allowed: multiples of 16", row_bytes));
  const std::uint64_t most = span_bytes(t.swizzle);
  need(most == 0 || row_bytes <= most,
       fmt::format("a row of the box has {} bytes; the swizzle allows {}", row_bytes, most));
}

EncodedTensorMap encoded(const Tiled& t) {
  EncodedTensorMap map{};
  map.mark = EncodedTensorMap::kMark;
  map.address = t.address;
  map.rank = static_cast<std::uint8_t>(t.rank);
  map.data_type = static_cast<std::uint8_t>(t.data_type);
  map.interleave = static_cast<std::uint8_t>(t.interleave);
  map.swizzle = static_cast<std::uint8_t>(t.swizzle);
  map.nan_out_of_bounds = static_cast<std::uint8_t>(t.out_of_bounds);
  for (std::uint32_t i = 0; i < t.rank; ++i) {
    map.sizes[i] = static_cast<std::uint32_t>(t.sizes[i]);  // 2^32 becomes 0
    map.box[i] = static_cast<std::uint16_t>(t.box[i]);
    map.steps[i] = static_cast<std::uint8_t>(t.steps[i]);
    if (i + 1 < t.rank) map.strides_bytes[i] = t.strides_bytes[i];
  }
  return map;
}

}  // namespace

int encode_tiled(void* map, int data_type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                 const std::uint64_t* strides_bytes, const std::uint32_t* box, const std::uint32_t* steps,
                 int interleave, int swizzle, int l2_promotion, int out_of_bounds) {
  try {
    const Tiled tiled{.data_type = data_type,
                      .rank = rank,
                      .address = reinterpret_cast<std::uintptr_t>(address),
                      .sizes = sizes,
                      .strides_bytes = strides_bytes,
                      .box = box,
                      .steps = steps,
                      .interleave = interleave,
                      .swizzle = swizzle,
                      .l2_promotion = l2_promotion,
                      .out_of_bounds = out_of_bounds};
    need(reinterpret_cast<std::uintptr_t>(map) % alignof(EncodedTensorMap) == 0,
         "the map's address is no multiple of 64 bytes");
    check_enumerations(tiled);
    check_memory(tiled);
    check_box(tiled);
    const EncodedTensorMap result = encoded(tiled);
    std::memcpy(map, &result, sizeof result);
    return CUDA_SUCCESS;
  } catch (const Refused& refused) {
    this_thread().refusal = refused.what();
    return refused.code();
  }
}

}  // namespace lockstep::cuda_stand_in
