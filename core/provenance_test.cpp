#include "core/provenance.h"

#include <array>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "core/ranks.h"
#include "core/record.h"
#include "testing/core/fake_nvml.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

TEST(Provenance, SourceIsARevisionOrUnknown) {
  const Source found = source();
  EXPECT_TRUE(found.revision == "unknown" || std::regex_match(found.revision, std::regex("[0-9a-f]{40}")))
      << found.revision;
  EXPECT_EQ(found.dirty.has_value(), found.revision != "unknown");
}

TEST(Provenance, BuildNamesCompilerFlagsAndType) {
  const Build found = build();
  EXPECT_TRUE(std::regex_match(*found.compiler, std::regex("(GNU|Clang) [0-9.]+"))) << *found.compiler;
  EXPECT_TRUE(has(*found.flags, "-std=c++20"));
  EXPECT_EQ(found.flags->find('/'), std::string::npos) << "a path";
  EXPECT_FALSE(found.type->empty());
  EXPECT_TRUE(std::regex_match(found.version, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+"))) << found.version;
}

TEST(Provenance, MachineIsThisOne) {
  const Machine machine = this_machine();
  EXPECT_EQ(machine.cores, usable_cores());
  EXPECT_GE(machine.cores, 1);
  ASSERT_TRUE(machine.memory_bytes.has_value());
  EXPECT_GT(*machine.memory_bytes, std::int64_t{64} << 20);
  EXPECT_TRUE(machine.kernel.value().starts_with("Linux ")) << *machine.kernel;
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(cpuinfo)), {});
  if (machine.cpu) {
    EXPECT_TRUE(has(text, *machine.cpu));
  }
  if (machine.caches.l1d_bytes && machine.caches.l2_bytes) {
    EXPECT_LE(*machine.caches.l1d_bytes, *machine.caches.l2_bytes);
  }
}

TEST(Provenance, UsableCoresFollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ASSERT_EQ(sched_setaffinity(0, sizeof cores, &cores), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Provenance, FingerprintChangesWithTheMachineAndNotWithItsClock) {
  const Machine machine = this_machine();
  EXPECT_TRUE(std::regex_match(fingerprint(machine), std::regex("[0-9a-f]{16}")));
  EXPECT_EQ(fingerprint(machine), fingerprint(this_machine()));
  Machine other = machine;
  other.mhz = 1;
  EXPECT_EQ(fingerprint(other), fingerprint(machine));
  std::set<std::string> prints{fingerprint(machine)};
  other.cores += 1;
  prints.insert(fingerprint(other));
  other.gpus = {"a GPU"};
  prints.insert(fingerprint(other));
  other.hosts = 4;
  prints.insert(fingerprint(other));
  EXPECT_EQ(prints.size(), 4u);
}

TEST(Provenance, HoldsNothingPrivate) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const Machine machine = this_machine();
  EXPECT_EQ(machine.kernel.value().find(host.data()), std::string::npos);
}

TEST(Provenance, CommandsKeepNoFolders) {
  EXPECT_EQ(public_command({"x_perf", "-b", "8", "--json", "/home/someone/r.jsonl", "--json=/root/r.jsonl", "~/a/b",
                            "out/r.jsonl", "--link", "latency_us=1,gbps=2", "-i", "/"}),
            (std::vector<std::string>{"x_perf", "-b", "8", "--json", "r.jsonl", "--json=r.jsonl", "b", "out/r.jsonl",
                                      "--link", "latency_us=1,gbps=2", "-i", ""}));
}

TEST(Provenance, RunsAreDistinguished) {
  std::set<std::string> ids;
  for (int k = 0; k < 100; ++k) ids.insert(new_run_id());
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_TRUE(std::regex_match(*ids.begin(), std::regex("[0-9a-f]{16}")));
}

TEST(Provenance, TimeIsUtcIso8601) {
  EXPECT_TRUE(
      std::regex_match(utc_now(), std::regex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z")))
      << utc_now();
}

using nlohmann::json;

TEST(GpuRecordTest, RowsAndKernelsShowWhatHeldTheirGpuBack) {
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

TEST(SteadyClocksTest, AThrottleThatStaysIsReportedAndEndsTheRepeats) {
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

TEST(GpuRecordTest, ARunRecordsHowItsGpusAreSet) {
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
            json::parse(R"({"source": "nvml", "devices": 1, "steps": 29, "seconds": 3.5, "joules_per_step": 60.5,
                            "watts": 500.0, "tokens_per_joule": 541.0})"));
}

}  // namespace
}  // namespace lockstep::core
