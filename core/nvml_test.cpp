#include "core/nvml.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device_cuda.h"
#include "core/error.h"
#include "core/fake_nvml_for_tests.h"

namespace lockstep::core {
namespace {

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

TEST(GpuMeter, SaysWhatHoldsItBackAndHowItIsSet) {
  fake() = {};
  const GpuMeter meter(fake_calls(), nullptr, "0000:1b:00.0");
  EXPECT_EQ(meter.temperature_c(), 64.0);
  EXPECT_EQ(meter.clock_limits(), (std::vector<std::string>{"power cap", "hardware thermal"}));
  EXPECT_DOUBLE_EQ(meter.power_limit_watts().value(), 700.0);
  EXPECT_EQ(meter.is_partitioned(), true);
  EXPECT_EQ(meter.driver_version(), "580.82.07");
}

TEST(GpuMeter, CallsThatADriverLacksHaveNoAnswer) {
  fake() = {};
  NvmlCalls calls = fake_calls();
  calls = {.init = calls.init,
           .shutdown = calls.shutdown,
           .error_string = calls.error_string,
           .device_by_pci_id = calls.device_by_pci_id,
           .total_energy = nullptr,
           .power = nullptr,
           .clock = nullptr,
           .temperature = nullptr,
           .throttle_reasons = nullptr,
           .power_limit = nullptr,
           .mig_mode = nullptr,
           .driver_version = nullptr};
  const GpuMeter meter(calls, nullptr, "0000:1b:00.0");
  EXPECT_FALSE(meter.energy_joules() || meter.power_watts() || meter.multiprocessor_clock_mhz());
  EXPECT_FALSE(meter.temperature_c() || meter.clock_limits() || meter.is_partitioned() || meter.driver_version());
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
