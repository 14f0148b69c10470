// Activations that wait elsewhere between forward and backward, in the host's memory or in a file: OFFLOAD and LOAD
// tasks in lane copy, part by part of a stage (Rajbhandari et al. 2019, ZeRO-R's Pa+cpu, arXiv:1910.02054, section 6.1;
// Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857, section 5.1.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// What a part keeps of one microbatch, and the time of each copy in picoseconds.
struct CopyCosts {
  std::int64_t bytes = 0;  // 0: nothing, and there are no copies
  std::int64_t offload_ps = 0;
  std::int64_t load_ps = 0;
};

// `parts`: of each stage, its parts; of a stage whose actions are in one piece, the whole. The actions of a part for a
// microbatch without a break are a piece of work. What a forward keeps leaves when it has ended, and comes back for the
// part's first recomputation or backward: both copies have the time of `ahead` other pieces of work. No later one
// begins before what has left is gone, and nothing comes back earlier, so that the device holds what at most 2 `ahead`
// + 1 pieces of work keep, however slow the copies are. What would have to come back as soon as it has left stays: a
// backward within 2 `ahead` pieces of work behind its forward.
void offload_activations(Step& step, std::span<const std::vector<CopyCosts>> parts, std::int32_t ahead = 1);

}  // namespace lockstep::schedules
