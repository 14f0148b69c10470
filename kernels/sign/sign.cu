#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_rows.cuh"
#include "kernels/sign/sign.h"

namespace lockstep::kernels {
namespace {

struct Signs {
  std::int64_t count;
  std::int64_t block;
  std::int64_t blocks;
};

LaunchShape launch_shape(const Signs& signs, const CudaContext& cuda) {
  return {.blocks = grid_blocks((signs.blocks + kWarpsPerBlock - 1) / kWarpsPerBlock, cuda.num_multiprocessors())};
}

// One warp per block of elements; in each iteration it encodes 32 of them to four bytes of codes.
__global__ void __launch_bounds__(kBlockThreads)
    encode_kernel(Signs signs, const float* x, std::uint8_t* codes, float* scales) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    Sum sum;
    for (std::int64_t first = 0; first < length; first += kWarpLanes) {
      const std::int64_t i = first + lane_index();
      const float value = i < length ? x[begin + i] : 0.0F;
      sum.value += fabsf(value);
      const std::uint32_t bits = __ballot_sync(kAllLanes, (__float_as_uint(value) >> 31) != 0);
      const std::int64_t byte = first / 8 + lane_index();
      if (lane_index() < kWarpLanes / 8 && byte * 8 < length) {
        codes[begin / 8 + byte] = static_cast<std::uint8_t>(bits >> (8 * lane_index()));
      }
    }
    const float whole = warp_reduce(sum).value;
    if (lane_index() == 0) scales[b] = isfinite(whole) ? __fdiv_rn(whole, static_cast<float>(length)) : not_a_number();
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    decode_kernel(Signs signs, const std::uint8_t* codes, const float* scales, float* y) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    const float scale = scales[b];
    for (std::int64_t i = lane_index(); i < length; i += kWarpLanes) {
      const bool negative = (codes[(begin + i) / 8] >> (i % 8) & 1) != 0;
      y[begin + i] = negative ? -scale : scale;
    }
  });
}

}  // namespace

void run_cuda(const EncodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  launch(cuda, "encode_signs", launch_shape(signs, cuda), encode_kernel, signs, args.x.as<float>(),
         args.codes.as<std::uint8_t>(), args.scales.as<float>());
}

void run_cuda(const DecodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  launch(cuda, "decode_signs", launch_shape(signs, cuda), decode_kernel, signs, args.codes.as<std::uint8_t>(),
         args.scales.as<float>(), args.y.as<float>());
}

}  // namespace lockstep::kernels
