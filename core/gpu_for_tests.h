// Settings of tests that use a GPU.
#pragma once

#include <chrono>
#include <memory>

#include "core/device_cuda.h"

namespace lockstep::core {

// Deadline of every wait in a test that runs on a GPU: at most a third of the time that ci/gpu_steps_*.txt gives its
// step, so that a hang is reported before the test is killed. tests/test_gpu_steps.py reads this line.
inline constexpr std::chrono::seconds kGpuTestDeadline{5};

inline std::unique_ptr<Device> make_gpu_for_tests(int rank = 0, int index = 0) {
  return make_cuda_device(index, rank, kGpuTestDeadline);
}

}  // namespace lockstep::core
