// The loops whose speed is a ceiling, by the machine's best instruction set.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::kernel_bench {

// The instruction set that Highway chooses here, of those that kernels are compiled for: "AVX3" is AVX-512.
std::string instruction_set();

// Over `floats` elements of each array, a multiple of 128; arrays are 64-byte aligned. `past_caches`: streaming stores.
void copy_loop(const float* a, float* to, std::int64_t floats, bool past_caches);
void triad_loop(const float* a, const float* b, float* to, std::int64_t floats, bool past_caches);
float read_loop(const float* a, std::int64_t floats);

// Fused multiply-adds in registers; returns the FLOPs that were done.
double fma_f32_loop(std::int64_t rounds);

// bf16 products with f32 sums in AMX tiles: whether this machine has them and the system lends them to this process,
// which must be asked before any thread uses them.
bool can_use_amx();
double amx_bf16_loop(std::int64_t rounds);

}  // namespace lockstep::kernel_bench
