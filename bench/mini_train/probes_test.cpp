#include "bench/mini_train/flags.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::mini_train {
namespace {

const std::vector<std::string> kAll{"amx", "packed", "onednn"};

std::vector<kernels::GemmTime> amx_is_slow() {
  return {{"amx", 0.003}, {"packed", 0.002}, {"onednn", 0.0025}};
}

std::vector<kernels::GemmTime> not_asked() {
  ADD_FAILURE() << "a probe that nobody asked for";
  return amx_is_slow();
}

TEST(GemmDecision, TheProbesFastestIsChosenAndRecorded) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "", kAll, amx_is_slow});
  EXPECT_EQ(record.implementation, "packed");
  EXPECT_EQ(record.chosen_by, "probe");
  const core::NamedNumbers times{{"amx", 3000}, {"packed", 2000}, {"onednn", 2500}};
  EXPECT_EQ(record.probe_us, times);
  EXPECT_NE(gemm_text(record).find("--gemm packed repeats"), std::string::npos);
}

TEST(GemmDecision, AFlagNeedsNoProbe) {
  for (const char* const flag : {"onednn", trainer::TrainOptions::kPerShape}) {
    const core::GemmRecord record = decide_gemm({flag, core::DType::f32, "amx", kAll, not_asked});
    EXPECT_EQ(record.implementation, flag);
    EXPECT_EQ(record.chosen_by, "flag");
  }
}

TEST(GemmDecision, AResumedRunKeepsToItsCheckpoint) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "amx", kAll, not_asked});
  EXPECT_EQ(record.implementation, "amx");
  EXPECT_EQ(record.chosen_by, "checkpoint");
}

TEST(GemmDecision, WhatTheCheckpointNamesMayBeMissingHere) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "amx", {"packed"}, [] {
                                                 return std::vector<kernels::GemmTime>{{"packed", 0.002}};
                                               }});
  EXPECT_EQ(record.implementation, "packed");
  EXPECT_EQ(record.chosen_by, "probe");
}

TEST(GemmDecision, AMissingImplementationIsRefused) {
  try {
    decide_gemm({"amx", core::DType::f32, "", {"packed", "onednn"}, not_asked});
    FAIL() << "not refused";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("--gemm amx is not available on this machine for f32"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("packed, onednn"), std::string::npos);
  }
}

TEST(GemmDecision, OfOneProcessIsOfWhatIsHere) {
  trainer::TrainOptions options;
  options.layout.compute = core::DType::f16;
  EXPECT_EQ(decide_gemm(kProbeGemms, options, 1).implementation, "packed");
}

// Takes the times of a list, one per run, and the last one from then on.
TimedWork work_of(double flops, std::vector<double> seconds, int& runs) {
  return {flops, [seconds, &runs] {
            const auto run = static_cast<std::size_t>(runs++);
            return seconds[std::min(run, seconds.size() - 1)];
          }};
}

TEST(Peak, IsTheBestRunOfTheBestWork) {
  int runs = 0;
  int other_runs = 0;
  const std::array works{work_of(10, {5, 1, 4}, runs), work_of(100, {50, 40, 8, 60}, other_runs)};
  EXPECT_DOUBLE_EQ(best_flops_a_s(works, 5, std::chrono::nanoseconds(0)), 100.0 / 8);
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(other_runs, 5);
}

TEST(Peak, RunsUntilTheSpanHasPassed) {
  int runs = 0;
  const std::array works{work_of(1, {1}, runs)};
  const auto start = std::chrono::steady_clock::now();
  best_flops_a_s(works, 1, std::chrono::milliseconds(30));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  EXPECT_GT(runs, 1);
}

TEST(Peak, OfThisMachineIsAtLeastThatOfOneProduct) {
  EXPECT_GT(measured_peak_flops(core::DType::f32, 1), 1e8);
}

}  // namespace
}  // namespace lockstep::mini_train
