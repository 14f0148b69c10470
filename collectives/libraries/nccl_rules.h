// Rules about operations that NCCL supports, without NCCL: checked before anything is started, and tested without a
// GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"

namespace lockstep::libraries {

// Returns why NCCL cannot do this operation; nothing if it can. `compute_capability` is the GPUs', 90 for 9.0.
std::optional<std::string> nccl_refusal(const collectives::Operation& operation, int num_ranks, int compute_capability);

// Identifies a GPU in the whole world.
using GpuUuid = std::array<std::uint8_t, 16>;

// Facts that decide whether NCCL lets ranks share a GPU: since 2.30, if NCCL_MULTI_RANK_GPU_ENABLE is 1 (its
// src/init.cc).
struct NcclSharing {
  int version_code;  // as ncclGetVersion gives it: 22809 for 2.28.9
  bool enabled;      // the variable is 1
};

// Returns why ranks cannot share a GPU, and what to do; nothing if they can.
std::optional<std::string> sharing_refusal(const NcclSharing& sharing);

// Returns why we do not use this version, which lacks calls that we make (all_to_all, gather, scatter); nothing if we
// do.
std::optional<std::string> version_refusal(int version_code);

// Returns why NCCL cannot join ranks on these GPUs ([rank]); nothing if all differ, or may be shared.
std::optional<std::string> shared_gpu_refusal(std::span<const GpuUuid> gpus, const NcclSharing& sharing);

// Most thread blocks of a call's kernel on the GPU of `rank`, so that the kernels of all ranks on it, which wait for
// each other, run at the same time; 0, NCCL decides, for a rank that has its GPU alone. NCCL launches blocks in
// clusters of 4 on Hopper, which do not fill every multiprocessor: only three quarters are given out.
int most_blocks(std::span<const GpuUuid> gpus, int rank, int num_multiprocessors);

// The configuration that the user asks for, limited to so many thread blocks (0: no limit). Throws a usage Error that
// names --min-ctas or --max-ctas if it asks for more.
NcclConfig config_within(const NcclConfig& asked, int most_blocks);

}  // namespace lockstep::libraries
