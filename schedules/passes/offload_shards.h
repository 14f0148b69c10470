// Offloads shards of gradients and weights to the host's memory or to files (ZeRO-Offload: Ren et al. 2021,
// arXiv:2101.06840, section 4; ZeRO-Infinity: Rajbhandari et al. 2021, arXiv:2104.07857, section 5): OFFLOAD tasks in
// lane copy and LOAD tasks in lane load.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/step/step.h"

namespace lockstep::schedules {

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
