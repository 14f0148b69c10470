// Offloads activations between forward and backward to the host's memory or to a file: OFFLOAD and LOAD tasks in lane
// copy, for each part of a stage (Rajbhandari et al. 2019, ZeRO-R's Pa+cpu, arXiv:1910.02054, section 6.1; Rajbhandari
// et al. 2021, ZeRO-Infinity, arXiv:2104.07857, section 5.1.2).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Activations that a part keeps of one microbatch, and the time of each copy in picoseconds.
struct CopyCosts {
  std::int64_t bytes = 0;  // 0: no copies
  std::int64_t offload_ps = 0;
  std::int64_t load_ps = 0;
};

// `parts`: the parts of each stage, or one entry for a stage whose actions are not split. A *piece of work* is an
// uninterrupted run of a part's actions for one microbatch. Activations are offloaded when their forward has ended and
// loaded for the part's first recomputation or backward; each copy may overlap `ahead` other pieces of work. Later
// pieces wait for the offload, and no load starts earlier, so the device holds the activations of at most 2 `ahead` + 1
// pieces of work, however slow the copies are. Activations whose backward is within 2 `ahead` pieces of work of their
// forward stay on the device.
void offload_activations(Step& step, std::span<const std::vector<CopyCosts>> parts, std::int32_t ahead = 1);

// Offloads shards of gradients and weights to the host's memory or to files (ZeRO-Offload: Ren et al. 2021,
// arXiv:2101.06840, section 4; ZeRO-Infinity: Rajbhandari et al. 2021, arXiv:2104.07857, section 5): OFFLOAD tasks in
// lane copy and LOAD tasks in lane load.

// Time to offload the shard of a stage's bucket, in picoseconds. `adds`: the shard is added to that of earlier
// microbatches, which has to be loaded and offloaded again.
using GradientCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t bucket, bool adds)>;
// Time to load the shard of a stage's unit, in picoseconds.
using ParameterCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t unit)>;

// Offloads each bucket's shard after its last reduction and before the bucket is reduced again. Kernels after a
// reduction wait until all shards except those of the last `ahead` + 1 reductions are offloaded, which bounds the
// shards on the device. Call after reduce_gradients().
void offload_gradients(Step& step, const GradientCopyTime& time, std::int32_t ahead);

// Loads the rank's own shard before each UNSHARD, which frees it: at most `ahead` + 1 shards are on the device or in
// flight. Call after shard_parameters().
void load_parameters(Step& step, const ParameterCopyTime& time, std::int32_t ahead);

}  // namespace lockstep::schedules
