// Whether a device computes: only the stand-in without an executor does not. With one, core's question gets the answer
// that a driver gives, that there is no such function.
#include <gtest/gtest.h>

#include "core/device.h"
#include "testing/core/fixtures.h"
#include "testing/cuda_stand_in/launch.h"

namespace lockstep::core {
namespace {

class Idle final : public cuda_stand_in::Executor {
  std::optional<cuda_stand_in::KernelFacts> facts_of(const std::string& /*kernel*/) override { return std::nullopt; }
  void begin(const cuda_stand_in::Launch& /*launch*/) override {}
  std::vector<std::uint64_t> run() override { return {}; }
};

TEST(StandInComputes, WhereAnExecutorRunsItsKernels) {
  const auto device = make_gpu_for_tests();
  EXPECT_FALSE(device->computes());
  Idle executor;
  cuda_stand_in::install(&executor);
  EXPECT_TRUE(device->computes());
  cuda_stand_in::install(nullptr);
  EXPECT_FALSE(device->computes());
  EXPECT_TRUE(make_cpu_device()->computes());
}

}  // namespace
}  // namespace lockstep::core
