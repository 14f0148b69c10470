// The kernels that compute attention on a CUDA device:
//   "mma"           tensor cores by mma.sync, on compute capability 8.0 and later; the default
//   "wgmma"         tensor cores by wgmma, after FlashAttention-3, on compute capability 9.0: bf16 and f16, 64 or 128
//                   columns per head, a positive scale, addresses and strides of 16 bytes and of whole heads
//   "multiply-add"  in f32; used for f32, and for more than 128 columns per head
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/attention/attention.h"

namespace lockstep::kernels {

inline constexpr std::array kAttentionChoices{"mma", "wgmma"};  // the default first
// Help of the flag --attention, which programs have alike.
inline constexpr const char* kAttentionHelp =
    "kernels of attention on a GPU: mma, or wgmma (compute capability 9.0; bf16 and f16, heads of 64 or 128 columns)";

// Why the choice cannot be had on a device of this compute capability, 90 for 9.0; nothing if it can.
// "attention wgmma: ...", as the flag is.
inline std::optional<std::string> attention_refusal(const std::string& name, int capability) {
  constexpr int kHopper = 90;  // code for 9.0a runs on no other
  if (name != "wgmma" || capability == kHopper) return std::nullopt;
  return "attention wgmma: the device has compute capability " + std::to_string(capability / 10) + "." +
         std::to_string(capability % 10) + "; allowed: 9.0, or mma";
}

// Whether wgmma takes rows of this dtype and head; besides these, strides and addresses count.
constexpr bool wgmma_takes(core::DType dtype, std::int64_t head_columns) {
  return (dtype == core::DType::bf16 || dtype == core::DType::f16) && (head_columns == 64 || head_columns == 128);
}

// Chooses one of kAttentionChoices for the context from now on; "wgmma" is used for all arguments that it supports.
// Throws a usage Error if the device has no wgmma.
void choose_attention(CudaContext& cuda, const std::string& name);

// Returns whether checked arguments are computed by wgmma there.
bool takes_wgmma(const AttentionForward& args, CudaContext& cuda);
bool takes_wgmma(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
