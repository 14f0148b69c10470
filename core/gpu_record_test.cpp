#include "core/gpu_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

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
