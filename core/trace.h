// Named ranges on the time line of a profiler (Nsight Systems, by NVTX). Without a profiler a range costs a few
// nanoseconds; in builds without CUDA it does nothing.
#pragma once

namespace lockstep::core {

bool trace_ranges_built();  // true if ScopedRange does anything

// A range of this thread from construction to destruction; ranges nest.
class ScopedRange {
 public:
  explicit ScopedRange(const char* name);
  ~ScopedRange();
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
};

}  // namespace lockstep::core
