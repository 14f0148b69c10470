// Attention for compute capability 9.0a: what both passes share beyond base/tensor_core_tiles.cuh. After Shah,
// Bikshandi, Zhang, Thakkar, Ramani, Dao 2024, arXiv:2407.08608 (FlashAttention-3), sections 3.1 and 3.2: one warpgroup
// loads tiles by the copy engine (TMA), two multiply them (wgmma).
//
// The kernels are templates over their lane: HopperLane on a device, EmulatedHopperLane on the CPU.
#pragma once

#include "kernels/attention/attention_tiles.cuh"
#include "kernels/base/tensor_core_tiles.cuh"
#include "kernels/base/tensor_map.h"

namespace lockstep::kernels {

// Converts sums of 16 rows of a warp to the first factor of a product: kBlocks / 2 fragments of mma.m16n8k16.
template <class T, class Lane, int kBlocks>
__device__ void round_factors(Lane& /*lane*/, const float (&sums)[kBlocks][4],
                              std::uint32_t (&factors)[kBlocks / 2][4]) {
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) {
    factors[k][0] = Lane::template pack<T>(sums[2 * k][0], sums[2 * k][1]);
    factors[k][1] = Lane::template pack<T>(sums[2 * k][2], sums[2 * k][3]);
    factors[k][2] = Lane::template pack<T>(sums[2 * k + 1][0], sums[2 * k + 1][1]);
    factors[k][3] = Lane::template pack<T>(sums[2 * k + 1][2], sums[2 * k + 1][3]);
  }
}

// Tensors of heads in the form that the copy engine takes.
inline HeadTensor queries_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.heads, s.queries, s.batch, 2 * s.stride(), box_rows};
}
inline HeadTensor keys_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.key_heads(), s.keys, s.batch, 2 * s.key_stride(), box_rows};
}
inline HeadTensor packed_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.heads, s.queries, s.batch, 2 * s.row(), box_rows};
}

}  // namespace lockstep::kernels
