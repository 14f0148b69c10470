// Attention of a decode step on tensor cores, for kernels/attention_decode/attention_decode.cu only.
#pragma once

#include <cstdint>

#include "kernels/attention_decode/attention_decode.h"

namespace lockstep::kernels {

inline constexpr int kDecodeTileRows = 16;  // rows that a block takes

template <class T>
struct DecodeOperands;

// Returns whether these kernels take checked arguments there: several rows of bf16 or f16 share a head of keys, which
// has up to 128 columns, in operands whose rows are multiples of 16 bytes.
bool takes_decode_tiles(const AttentionDecode& args, CudaContext& cuda);

// Queues the kernel that computes each part; `blocks` take kDecodeTileRows rows each. For T of 16 bits.
template <class T>
void queue_decode_tiles(const DecodeOperands<T>& operands, std::int64_t blocks, std::int64_t table_entries,
                        CudaContext& cuda);

}  // namespace lockstep::kernels
