// Loops whose speed is a ceiling, compiled for the machine's best instruction set.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::kernel_bench {

// The instruction set that Highway chooses here among those that kernels are compiled for: "AVX3" is AVX-512.
std::string instruction_set();

// Each processes `floats` elements of each array, a multiple of 128; arrays are 64-byte aligned. `past_caches`: uses
// non-temporal stores.
void copy_loop(const float* a, float* to, std::int64_t floats, bool past_caches);
void triad_loop(const float* a, const float* b, float* to, std::int64_t floats, bool past_caches);
float read_loop(const float* a, std::int64_t floats);

// Runs fused multiply-adds in registers; returns the number of FLOPs.
double fma_f32_loop(std::int64_t rounds);

// bf16 products with f32 sums in AMX tiles. can_use_amx() returns whether this machine has them and the system grants
// them to this process; call it before any thread uses them.
bool can_use_amx();
double amx_bf16_loop(std::int64_t rounds);

}  // namespace lockstep::kernel_bench
