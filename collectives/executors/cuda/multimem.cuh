// Passes of which NVLink's switch does a part: a block's slice of an instruction with a place of buffer kMulticast, see
// multimem_program.h.
#pragma once

#include <cstdint>

#include "collectives/executors/cuda/passes.cuh"
#include "kernels/base/cuda_multimem.cuh"

namespace lockstep::executors::cuda {

// Elements [begin, end), whole packs. The switch sums in its own order; a copy is one source.
template <class T, core::ReduceOp kOp, bool kLoads>
__device__ __forceinline__ void multimem_range(const Block& block, const DeviceInstruction& one, bool stores,
                                               std::int64_t begin, std::int64_t end) {
  constexpr int kItems = static_cast<int>(kernels::kAccessBytes / sizeof(T));
  constexpr int kPacks = 2;
  const BlockState& state = block.state;
  const std::int64_t average_over = one.completes != 0 ? block.args.average_over : 0;
  for_each_packs<kItems, kPacks>(begin, end, [&](std::int64_t at, std::int64_t stride, std::int64_t left) {
    kernels::Pack<T, kItems> packs[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * stride >= left) continue;
      const T* const from = elements<T>(state.sources[0], at + p * stride);
      if constexpr (kLoads) {
        packs[p] = kernels::multimem_load<T, kOp>(from);
      } else {
        packs[p] = kernels::Pack<T, kItems>::load(from);
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * stride >= left) continue;
      for (int i = 0; i < kItems && average_over > 0; ++i) {
        const auto sum = kernels::widened(packs[p].items[i]);
        packs[p].items[i] = kernels::narrowed<T>(kernels::averaged(sum, average_over));
      }
      for (std::uint32_t k = 0; k < one.num_destinations; ++k) {
        T* const to = elements<T>(state.destinations[k], at + p * stride);
        if (stores) {
          kernels::multimem_store(to, packs[p]);
        } else {
          packs[p].store(to);
        }
      }
    }
  });
}

// Slices as pass_slice() cuts them. A fence on either side: what other threads have written by the memory's own address
// is read by its multicast address, and the other way round.
template <class T, core::ReduceOp kOp>
__device__ __forceinline__ void multimem_slice(const Block& block, const DeviceInstruction& one) {
  constexpr int kItems = static_cast<int>(kernels::kAccessBytes / sizeof(T));
  const bool loads = block.source(one, 0).buffer == kMulticast;
  const bool stores = block.destination(one, 0).buffer == kMulticast;
  const std::int64_t packs = one.count / kItems;
  const std::int64_t begin = packs * block.index / block.args.blocks * kItems;
  const std::int64_t end = packs * (block.index + 1) / block.args.blocks * kItems;
  kernels::fence_between_aliases();
  if (!loads && !stores) {
    pass_slice<T, kOp>(block, one);
  } else if (!loads) {
    multimem_range<T, kOp, false>(block, one, stores, begin, end);
  } else if constexpr (kernels::Multimem<T, kOp>::kExists) {
    multimem_range<T, kOp, true>(block, one, stores, begin, end);
  }
  kernels::fence_between_aliases();
}

}  // namespace lockstep::executors::cuda
