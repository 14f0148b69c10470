// The kernels that compute attention on a CUDA device:
//   "mma"           tensor cores by mma.sync, on compute capability 8.0 and later; the default
//   "wgmma"         tensor cores by wgmma, after FlashAttention-3, on compute capability 9.0: bf16 and f16, 64 or 128
//                   columns per head, a positive scale, addresses and strides of 16 bytes and of whole heads
//   "multiply-add"  in f32; used for f32, and for more than 128 columns per head
#pragma once

#include <array>
#include <string>

#include "kernels/attention/attention.h"

namespace lockstep::kernels {

inline constexpr std::array kAttentionChoices{"mma", "wgmma"};

// Chooses one of kAttentionChoices for the context from now on; "wgmma" is used for all arguments that it supports.
// Throws a usage Error if the device has no wgmma.
void choose_attention(CudaContext& cuda, const std::string& name);

// Returns whether checked arguments are computed by wgmma there.
bool takes_wgmma(const AttentionForward& args, CudaContext& cuda);
bool takes_wgmma(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
