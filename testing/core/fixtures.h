// For tests: a temporary folder, and a GPU with a deadline.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::core {

// For tests: a temporary folder that is removed with its owner.

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "lockstep_test_XXXXXX").string();
    LOCKSTEP_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Settings of tests that use a GPU.

// Deadline of every wait in a test that runs on a GPU: at most a third of the time that ci/gpu_steps_*.txt gives its
// step, so that a hang is reported before the test is killed. tests/test_gpu_steps.py reads this line.
inline constexpr std::chrono::seconds kGpuTestDeadline{5};

// Why a test that looks at what a kernel did is skipped in a dry run (ci/gpu_dry_run.sh).
inline constexpr const char* kNothingComputed = "the device computes nothing";

inline std::unique_ptr<Device> make_gpu_for_tests(int rank = 0, int index = 0) {
  return make_cuda_device(index, rank, kGpuTestDeadline);
}

}  // namespace lockstep::core
