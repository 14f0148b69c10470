// Shards of gradients and weights that lie in the host's memory or in files (ZeRO-Offload: Ren et al. 2021,
// arXiv:2101.06840, section 4; ZeRO-Infinity: Rajbhandari et al. 2021, arXiv:2104.07857, section 5): OFFLOAD tasks in
// lane copy and LOAD tasks in lane load.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// The time to copy the shard of a stage's bucket away, in picoseconds; `adds`: to those of earlier microbatches, which
// come to the device and leave again.
using GradientCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t bucket, bool adds)>;
// The time to bring the shard of a stage's unit.
using ParameterCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t unit)>;

// Behind the last reduction of each bucket its shard leaves, before the bucket is reduced again. The kernels behind a
// reduction wait until all shards have left but those of the last `ahead` + 1 reductions, so that no more of them are
// on the device. After reduce_gradients().
void offload_gradients(Step& step, const GradientCopyTime& time, std::int32_t ahead);

// Before each UNSHARD the rank's own shard comes to the device, which the gather gives up: at most `ahead` + 1 shards
// are there or on their way. After shard_parameters().
void load_parameters(Step& step, const ParameterCopyTime& time, std::int32_t ahead);

}  // namespace lockstep::schedules
