// Which kernels compute attention on a CUDA device:
//   "mma"           tensor cores by mma.sync, on compute capability 8.0 and later; the default
//   "wgmma"         tensor cores by wgmma, after FlashAttention-3, on compute capability 9.0: bf16 and f16, heads of 64
//                   or 128 columns, a positive scale, addresses and strides of 16 bytes and of whole heads
//   "multiply-add"  in f32; for f32, and for heads of more than 128 columns
#pragma once

#include <array>
#include <string>

#include "kernels/attention/attention.h"

namespace lockstep::kernels {

inline constexpr std::array kAttentionChoices{"mma", "wgmma"};

// One of kAttentionChoices, for the context from now on: "wgmma" wherever it can be. Throws a usage Error if the device
// has no wgmma.
void choose_attention(CudaContext& cuda, const std::string& name);

// Whether arguments that were checked are computed by wgmma there.
bool takes_wgmma(const AttentionForward& args, CudaContext& cuda);
bool takes_wgmma(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
