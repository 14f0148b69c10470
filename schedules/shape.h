// What a generator is asked for.
#pragma once

#include <cstdint>

namespace lockstep::schedules {

struct PipelineShape {
  std::int32_t ranks = 1;         // p
  std::int32_t microbatches = 1;  // m
  std::int32_t chunks = 1;        // v, stages a rank
};

}  // namespace lockstep::schedules
