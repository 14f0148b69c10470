#include "kernels/attention_decode/decode_tiles.h"

#include "kernels/attention_decode/decode_tiles.cuh"
#include "kernels/base/cuda_lane.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::kernels {
namespace {

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads)
    decode_tiles_kernel(const __grid_constant__ DecodeOperands<typename Tiles::Value> operands) {
  CudaLane lane;
  decode_tiles_block<Tiles>(lane, operands, blockIdx.x);
}

template <class Tiles>
void queue_tiles(const DecodeOperands<typename Tiles::Value>& operands, std::int64_t blocks, std::int64_t table_entries,
                 CudaContext& cuda) {
  const LaunchShape shape{
      .blocks = blocks, .threads = kAttentionThreads, .shared_bytes = decode_shared_bytes<Tiles>(table_entries)};
  launch(cuda, "attention_decode", shape, decode_tiles_kernel<Tiles>, operands);
}

}  // namespace

bool takes_decode_tiles(const AttentionDecode& args, CudaContext& cuda) {
  constexpr int kMmaCapability = 80;
  const DecodeShape& s = args.shape;
  return size_of(args.q.dtype) == 2 && s.group() * s.queries > 1 && s.head_columns <= kMostTensorCoreColumns &&
         s.factor() > 0 && cuda.compute_capability() >= kMmaCapability &&
         items_an_access(size_of(args.q.dtype), s.head_columns, {args.q.data, args.k.data, args.v.data}) > 1;
}

template <class T>
void queue_decode_tiles(const DecodeOperands<T>& operands, std::int64_t blocks, std::int64_t table_entries,
                        CudaContext& cuda) {
  if (operands.shape.head_columns <= 64) return queue_tiles<DecodeTiles<T, 64>>(operands, blocks, table_entries, cuda);
  queue_tiles<DecodeTiles<T, 128>>(operands, blocks, table_entries, cuda);
}

template void queue_decode_tiles(const DecodeOperands<__half>&, std::int64_t, std::int64_t, CudaContext&);
template void queue_decode_tiles(const DecodeOperands<__nv_bfloat16>&, std::int64_t, std::int64_t, CudaContext&);

}  // namespace lockstep::kernels
