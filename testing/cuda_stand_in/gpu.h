// The GPU that the stand-in describes: an H100 SXM. Sources: CUDA Programming Guide, "Compute Capabilities" (9.0), and
// cudaGetDeviceProperties() of such a device.
#pragma once

#include <cstddef>

namespace lockstep::cuda_stand_in::gpu {

inline constexpr const char* kName = "stand-in for NVIDIA H100 80GB HBM3";
inline constexpr int kComputeMajor = 9;
inline constexpr int kComputeMinor = 0;
inline constexpr int kClockKhz = 1'980'000;
inline constexpr std::size_t kMemoryBytes = std::size_t{79} << 30;
inline constexpr std::size_t kL2Bytes = std::size_t{50} << 20;
inline constexpr int kRuntimeVersion = 13000;
inline constexpr int kDriverVersion = 13000;

// Shared memory: what every kernel of a block may have, what one may ask for, and what a multiprocessor holds, of which
// each block takes kReservedSharedBytes more.
inline constexpr std::size_t kSharedBytes = std::size_t{48} << 10;
inline constexpr std::size_t kOptInSharedBytes = std::size_t{227} << 10;
inline constexpr std::size_t kMultiprocessorSharedBytes = std::size_t{228} << 10;
inline constexpr std::size_t kReservedSharedBytes = std::size_t{1} << 10;

inline constexpr int kRegisters = 64 << 10;   // a multiprocessor's, and the most of a block
inline constexpr int kRegistersAtOnce = 256;  // a warp's registers are a multiple of this
inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kBlockThreads = 1024;  // most of a block
inline constexpr int kMultiprocessorThreads = 2048;
inline constexpr int kMultiprocessorBlocks = 32;
inline constexpr unsigned kMostBlockX = 1024, kMostBlockY = 1024, kMostBlockZ = 64;
inline constexpr unsigned kMostGridX = 0x7fffffff, kMostGridY = 65535, kMostGridZ = 65535;
inline constexpr unsigned kPortableClusterBlocks = 8;
inline constexpr std::size_t kParameterBytes = 32'764;  // most of a kernel

}  // namespace lockstep::cuda_stand_in::gpu
