// The GPU of tests.
#pragma once

#include <chrono>
#include <memory>

#include "core/device_cuda.h"

namespace lockstep::core {

// The deadline of every wait of a test that runs on a GPU: at most a third of what ci/gpu_steps_*.txt gives its step,
// so that what hangs says so before it is killed. tests/test_gpu_steps.py reads this line.
inline constexpr std::chrono::seconds kGpuTestDeadline{5};

inline std::unique_ptr<Device> make_gpu_for_tests(int rank = 0, int index = 0) {
  return make_cuda_device(index, rank, kGpuTestDeadline);
}

}  // namespace lockstep::core
