// Replaces trace_nvtx.cpp in builds without CUDA's headers.
#include "core/trace.h"

namespace lockstep::core {

bool trace_ranges_built() {
  return false;
}
ScopedRange::ScopedRange(const char* /*name*/) {}
ScopedRange::~ScopedRange() = default;

}  // namespace lockstep::core
