// What NCCL's collectives can do, without NCCL: asked before anything is started, and tested without a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/collective.h"

namespace lockstep::libraries {

// Why NCCL cannot do this operation; nothing if it can. `compute_capability` is that of the GPUs, 90 for 9.0.
std::optional<std::string> nccl_refusal(const collectives::Operation& operation, int num_ranks, int compute_capability);

// Identifies a GPU in the whole world.
using GpuUuid = std::array<std::uint8_t, 16>;

// Why NCCL cannot join ranks on these GPUs ([rank]): it needs one GPU a rank. Nothing if they are all different.
std::optional<std::string> shared_gpu_refusal(std::span<const GpuUuid> gpus);

}  // namespace lockstep::libraries
