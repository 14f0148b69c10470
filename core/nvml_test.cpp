#include "core/nvml.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::core {
namespace {

// NVML's functions take no context: what the fake ones answer, and how often the library is open, for the test program.
struct FakeGpu {
  int opened = 0;
  unsigned long long millijoules = 5'000'000;
  int energy_result = 0;
};
FakeGpu& fake() {
  static FakeGpu gpu;
  return gpu;
}

NvmlCalls fake_calls() {
  return {.init =
              [] {
                ++fake().opened;
                return 0;
              },
          .shutdown =
              [] {
                --fake().opened;
                return 0;
              },
          .error_string = [](int result) { return result == 6 ? "Not Found" : "Unknown Error"; },
          .device_by_pci_id =
              [](const char* pci_id, void** device) {
                *device = &fake();
                return pci_id == std::string("0000:1b:00.0") ? 0 : 6;
              },
          .total_energy =
              [](void* device, unsigned long long* millijoules) {
                *millijoules = static_cast<FakeGpu*>(device)->millijoules;
                return static_cast<FakeGpu*>(device)->energy_result;
              },
          .power =
              [](void* /*device*/, unsigned int* milliwatts) {
                *milliwatts = 351'500;
                return 0;
              },
          .clock =
              [](void* /*device*/, int domain, unsigned int* mhz) {
                *mhz = domain == 1 ? 1980 : 2619;
                return domain == 1 || domain == 2 ? 0 : 2;
              }};
}

TEST(GpuMeter, CountsJoulesFromItsBeginningAndGivesWattsAndClocks) {
  fake() = {};
  {
    const GpuMeter meter(fake_calls(), nullptr, "0000:1b:00.0");
    EXPECT_EQ(meter.energy_joules(), 0.0);
    fake().millijoules += 12'500;
    EXPECT_DOUBLE_EQ(meter.energy_joules().value(), 12.5);
    EXPECT_DOUBLE_EQ(meter.power_watts().value(), 351.5);
    EXPECT_EQ(meter.multiprocessor_clock_mhz(), 1980.0);
    EXPECT_EQ(meter.memory_clock_mhz(), 2619.0);
    EXPECT_EQ(fake().opened, 1);
  }
  EXPECT_EQ(fake().opened, 0);
}

TEST(GpuMeter, WhatTheGpuDoesNotTellIsNothing) {
  fake() = {.energy_result = 3};  // not supported
  const GpuMeter meter(fake_calls(), nullptr, "0000:1b:00.0");
  EXPECT_EQ(meter.energy_joules(), std::nullopt);
  EXPECT_TRUE(meter.power_watts().has_value());
}

TEST(GpuMeter, AGpuThatIsNotThereIsAnErrorThatNamesIt) {
  fake() = {};
  try {
    const GpuMeter meter(fake_calls(), nullptr, "0000:99:00.0");
    FAIL() << "metered";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "nvmlDeviceGetHandleByPciBusId failed for the GPU at 0000:99:00.0: Not Found");
  }
  EXPECT_EQ(fake().opened, 0);
}

TEST(GpuMeter, WithoutTheLibraryThereIsNoneAndAReason) {
  const OpenedMeter none = open_gpu_meter("0000:1b:00.0", "libno-such-library.so.1");
  EXPECT_EQ(none.meter, nullptr);
  EXPECT_NE(none.why_absent.find("libno-such-library.so.1"), std::string::npos) << none.why_absent;
  EXPECT_EQ(none.why_absent.find('\n'), std::string::npos);
  const OpenedMeter other = open_gpu_meter("0000:1b:00.0", "libm.so.6");
  EXPECT_EQ(other.meter, nullptr);
  EXPECT_NE(other.why_absent.find("nvmlInit_v2"), std::string::npos) << other.why_absent;
}

TEST(GpuMeter, OnThisMachineItMetersOrSaysWhy) {
  const auto gpus = cuda_devices();
  const OpenedMeter opened = open_gpu_meter(gpus.empty() ? "0000:00:00.0" : gpus.front().pci_id);
  EXPECT_NE(opened.meter == nullptr, opened.why_absent.empty());
  EXPECT_TRUE(!opened.meter || opened.meter->power_watts().value_or(1) > 0);
}

}  // namespace
}  // namespace lockstep::core
