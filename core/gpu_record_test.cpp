#include "core/gpu_record.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/fake_nvml_for_tests.h"
#include "core/record.h"

namespace lockstep::core {
namespace {

using nlohmann::json;

TEST(GpuRecordTest, RowsAndKernelsSayWhatHeldTheirGpuBack) {
  fake() = {};
  const GpuMeter meter(fake_calls(), nullptr, "0000:1b:00.0");
  const json wanted = json::parse(R"([{"pci_id": "0000:1b:00.0", "sm_mhz": 1980.0, "memory_mhz": 2619.0,
      "temperature_c": 64.0, "power_watts": 351.5, "clock_limits": ["power cap", "hardware thermal"]}])");
  RowRecord row;
  EXPECT_FALSE(json::parse(to_json(row)).contains("gpu_states"));
  row.gpu_states = {state_of("0000:1b:00.0", meter)};
  EXPECT_EQ(json::parse(to_json(row)).at("gpu_states"), wanted);
  KernelRecord kernel;
  kernel.gpu_states = row.gpu_states;
  EXPECT_EQ(json::parse(to_json(kernel)).at("gpu_states"), wanted);
}

// A row's samples on the fake GPU: `plant` changes it while attempt number 1, 2, ... is measured.
struct Measured {
  int attempts = 0;
  std::optional<GpuClocksRecord> record;
};
Measured measured_while(const std::function<void(int attempt)>& plant) {
  fake() = {.sm_mhz = 1980, .throttle_reasons = 0};
  const GpuMeter meter(fake_calls(), nullptr, "0000:1b:00.0");
  SteadyClocks clocks([&] { return std::vector{state_of("0000:1b:00.0", meter)}; });
  Measured measured;
  clocks.run([&] { plant(++measured.attempts); });
  measured.record = clocks.record();
  EXPECT_EQ(clocks.after().size(), 1U);
  return measured;
}

TEST(SteadyClocksTest, SamplesAtOneClockAreTakenOnce) {
  const Measured steady = measured_while([](int) { fake().sm_mhz = 1965; });  // one step of 15 MHz
  EXPECT_EQ(steady.attempts, 1);
  EXPECT_EQ(steady.record->repeats, 0);
  EXPECT_EQ(steady.record->disturbance, std::nullopt);
  EXPECT_EQ(steady.record->before.front().sm_mhz, 1980.0);
}

TEST(SteadyClocksTest, AThrottleThatPassesIsMeasuredAgain) {
  const Measured once = measured_while([](int attempt) {
    fake().throttle_reasons = attempt == 1 ? 0x40 : 0;  // hardware thermal
    fake().sm_mhz = attempt == 1 ? 1200 : 1980;
  });
  EXPECT_EQ(once.attempts, 3) << "the second began at 1200 MHz and ended at 1980";
  EXPECT_EQ(once.record->repeats, 2);
  EXPECT_EQ(once.record->disturbance, std::nullopt);
}

TEST(SteadyClocksTest, AThrottleThatStaysIsSaidAndEndsTheRepeats) {
  const Measured falling = measured_while([](int) { fake().sm_mhz -= 200; });
  EXPECT_EQ(falling.attempts, 3);
  EXPECT_EQ(falling.record->repeats, falling.record->most_repeats);
  EXPECT_EQ(falling.record->disturbance, "0000:1b:00.0: SM clock 1580 to 1380 MHz");
  RowRecord row;
  EXPECT_FALSE(json::parse(to_json(row)).contains("gpu_clocks"));
  row.gpu_clocks = falling.record;
  EXPECT_EQ(json::parse(to_json(row)).at("gpu_clocks").at("disturbance"), "0000:1b:00.0: SM clock 1580 to 1380 MHz");
}

TEST(SteadyClocksTest, ReasonsThatAppearCountAndThoseThatWereThereDoNot) {
  const auto state = [](double mhz, const std::vector<std::string>& limits) {
    return std::vector{GpuStateRecord{.pci_id = "gpu", .sm_mhz = mhz, .memory_mhz = {}, .clock_limits = limits}};
  };
  const auto found = [](const auto& before, const auto& after) { return clock_disturbance(before, after, 0.03); };
  for (const char* const throttle :
       {"power cap", "hardware slowdown", "software thermal", "hardware thermal", "power brake"}) {
    EXPECT_EQ(found(state(1980, {}), state(1980, {throttle})), "gpu: " + std::string(throttle));
    EXPECT_EQ(found(state(1980, {throttle}), state(1980, {throttle})), std::nullopt);
    EXPECT_EQ(found(state(1980, {throttle}), state(1980, {})), std::nullopt);
  }
  EXPECT_EQ(found(state(1980, {}), state(1980, {"application clocks"})), std::nullopt);
  EXPECT_EQ(found(state(345, {"idle"}), state(1980, {})), std::nullopt);
  EXPECT_EQ(found(state(345, {"idle"}), state(1980, {"power cap"})), "gpu: power cap");
  EXPECT_EQ(found(state(1900, {}), state(1980, {})), "gpu: SM clock 1900 to 1980 MHz");
}

TEST(SteadyClocksTest, WithoutNvmlSamplesAreTakenOnceAndNothingIsRecorded) {
  SteadyClocks clocks({});
  int attempts = 0;
  clocks.run([&] { ++attempts; });
  EXPECT_EQ(attempts, 1);
  EXPECT_FALSE(clocks.record());
  EXPECT_TRUE(clocks.after().empty());
}

TEST(GpuRecordTest, ARunSaysHowItsGpusAreSet) {
  const CudaDeviceInfo gpu{.index = 0,
                           .name = "Example GPU",
                           .memory_bytes = 1,
                           .pci_id = "ffff:ff:1f.0",
                           .uuid = {},
                           .compute_capability = 90,
                           .num_multiprocessors = 132,
                           .clock_mhz = 1980,
                           .shared_by_mps = false};
  RunRecord run;
  run.gpu = gpu_record({gpu}, 4);
  EXPECT_EQ(json::parse(to_json(run)).at("gpu"), json::parse(R"({"gpus": 1, "ranks_per_gpu": 4,
      "label": "shared GPU", "clock_mhz": 1980.0,
      "devices": [{"pci_id": "ffff:ff:1f.0", "power_limit_watts": null, "mig": null, "mps": false}]})"));
  EXPECT_TRUE(GpuWatch({gpu}).now().empty());
  EXPECT_FALSE(GpuWatch({gpu}).sees());
}

TEST(GpuRecordTest, EnergyThatNothingCountsIsNoField) {
  TrainingRecord training;
  EXPECT_FALSE(json::parse(to_json(training)).contains("energy"));
  EXPECT_FALSE(json::parse(to_json(training)).contains("graph"));
  training.energy = EnergyRecord{"nvml", 1, 29, 3.5, 60.5, 500, 541};
  EXPECT_EQ(json::parse(to_json(training)).at("energy"),
            json::parse(R"({"source": "nvml", "devices": 1, "steps": 29, "seconds": 3.5, "joules_a_step": 60.5,
                            "watts": 500.0, "tokens_per_joule": 541.0})"));
}

}  // namespace
}  // namespace lockstep::core
