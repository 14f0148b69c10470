#include "core/energy.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/device_cuda.h"
#include "core/error.h"
#include "testing/core/fake_nvml.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

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

TEST(GpuMeter, ReportsWhatHoldsItBackAndHowItIsSet) {
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
  EXPECT_EQ(error_text([] { const GpuMeter meter(fake_calls(), nullptr, "0000:99:00.0"); }),
            "nvmlDeviceGetHandleByPciBusId failed for the GPU at 0000:99:00.0: Not Found");
  EXPECT_EQ(fake().opened, 0);
}

TEST(GpuMeter, WithoutTheLibraryThereIsNoneAndAReason) {
  const OpenedMeter none = open_gpu_meter("0000:1b:00.0", "libno-such-library.so.1");
  EXPECT_EQ(none.meter, nullptr);
  EXPECT_TRUE(has(none.why_absent, "libno-such-library.so.1"));
  EXPECT_EQ(none.why_absent.find('\n'), std::string::npos);
  const OpenedMeter other = open_gpu_meter("0000:1b:00.0", "libm.so.6");
  EXPECT_EQ(other.meter, nullptr);
  EXPECT_TRUE(has(other.why_absent, "nvmlInit_v2"));
}

TEST(GpuMeter, OnThisMachineItMetersOrReportsWhy) {
  const auto gpus = cuda_devices();
  const OpenedMeter opened = open_gpu_meter(gpus.empty() ? "0000:00:00.0" : gpus.front().pci_id);
  EXPECT_NE(opened.meter == nullptr, opened.why_absent.empty());
  EXPECT_TRUE(!opened.meter || opened.meter->power_watts().value_or(1) > 0);
}

std::vector<std::unique_ptr<GpuMeter>> fake_gpus(const std::vector<std::string>& pci_ids) {
  std::vector<std::unique_ptr<GpuMeter>> gpus;
  for (const std::string& pci_id : pci_ids) gpus.push_back(std::make_unique<GpuMeter>(fake_calls(), nullptr, pci_id));
  return gpus;
}

TEST(EnergyOfGpus, IsTheSumOfAll) {
  fake() = {};
  const EnergyMeter opened = add_up_gpus(fake_gpus({"0000:1b:00.0", "0000:1b:01.0"}));
  ASSERT_TRUE(opened.joules);
  EXPECT_EQ(opened.source, "nvml");
  EXPECT_EQ(opened.devices, 2);
  fake().millijoules += 500;
  EXPECT_DOUBLE_EQ(opened.joules().value(), 1.0);
  fake().energy_result = 15;  // NVML_ERROR_GPU_IS_LOST
  EXPECT_EQ(opened.joules(), std::nullopt);
}

TEST(EnergyOfGpus, OneThatCountsNoneLeavesNoMeter) {
  fake() = {.energy_result = 3};
  const EnergyMeter opened = add_up_gpus(fake_gpus({"0000:1b:00.0"}));
  EXPECT_FALSE(opened.joules);
  EXPECT_TRUE(has(opened.why_absent, "does not report energy"));
}

TEST(EnergyOfGpus, WithoutNvmlOrGpusTheReasonIsOneLine) {
  for (const std::vector<std::string>& gpus : {std::vector<std::string>{}, {"0000:1b:00.0"}}) {
    const EnergyMeter opened = open_gpu_energy(gpus, "libno-such-library.so.1");
    EXPECT_FALSE(opened.joules);
    EXPECT_TRUE(opened.why_absent.starts_with("no energy: ")) << opened.why_absent;
    EXPECT_EQ(opened.why_absent.find('\n'), std::string::npos);
  }
}

// A folder with the structure of /sys/class/powercap.
class Powercap {
 public:
  void zone(const std::string& zone, const std::string& name, const std::string& energy_uj) {
    std::filesystem::create_directory(folder_ / zone);
    write(zone + "/name", name);
    write(zone + "/max_energy_range_uj", "1000000000");
    write(zone + "/energy_uj", energy_uj);
  }
  void write(const std::string& file, const std::string& text) { std::ofstream(folder_ / file) << text << "\n"; }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST(EnergyOfPackages, CountsEachPackageOnceAndNoneOfItsParts) {
  Powercap powercap;
  powercap.zone("intel-rapl", "", "");
  powercap.zone("intel-rapl:0", "package-0", "5000000");
  powercap.zone("intel-rapl:0:0", "core", "1");
  powercap.zone("intel-rapl:1", "package-1", "7000000");
  powercap.zone("intel-rapl:2", "psys", "9000000");
  const EnergyMeter opened = open_cpu_energy(powercap.path());
  ASSERT_TRUE(opened.joules) << opened.why_absent;
  EXPECT_EQ(opened.source, "rapl");
  EXPECT_EQ(opened.devices, 2);
  EXPECT_EQ(opened.joules(), 0.0);
  powercap.write("intel-rapl:0/energy_uj", "8000000");
  powercap.write("intel-rapl:0:0/energy_uj", "2000000");
  powercap.write("intel-rapl:2/energy_uj", "99000000");
  powercap.write("intel-rapl:1/energy_uj", "7500000");
  EXPECT_DOUBLE_EQ(opened.joules().value(), 3.5);
}

TEST(EnergyOfPackages, ACounterThatBeganAnewGoesOn) {
  Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", "999000000");
  const EnergyMeter opened = open_cpu_energy(powercap.path());
  ASSERT_TRUE(opened.joules) << opened.why_absent;
  for (const double sum : {2.0, 1002.0}) {
    powercap.write("intel-rapl:0/energy_uj", "1000000");
    EXPECT_DOUBLE_EQ(opened.joules().value(), sum);
    powercap.write("intel-rapl:0/energy_uj", "999000000");
    EXPECT_DOUBLE_EQ(opened.joules().value(), sum + 998.0);
  }
}

TEST(EnergyOfPackages, WhatCannotBeReadIsNamed) {
  Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", "");
  const EnergyMeter opened = open_cpu_energy(powercap.path());
  EXPECT_FALSE(opened.joules);
  EXPECT_TRUE(has(opened.why_absent, "intel-rapl:0/energy_uj cannot be read"));
  EXPECT_TRUE(has(open_cpu_energy("/no/such/folder").why_absent, "/no/such/folder has no RAPL package"));
}

TEST(EnergyOfPackages, OnThisMachineItCountsOrReportsWhy) {
  const EnergyMeter opened = open_cpu_energy();
  EXPECT_EQ(static_cast<bool>(opened.joules), opened.why_absent.empty());
  EXPECT_TRUE(!opened.joules || opened.joules().value_or(0) >= 0);
}

}  // namespace
}  // namespace lockstep::core
