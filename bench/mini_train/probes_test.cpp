#include "bench/mini_train/flags.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::mini_train {
namespace {

const std::vector<std::string> kAll{"packed", "onednn"};

std::vector<kernels::GemmTime> packed_is_slow() {
  return {{"packed", 0.003}, {"onednn", 0.002}};
}

std::vector<kernels::GemmTime> not_asked() {
  ADD_FAILURE() << "a probe that nobody asked for";
  return packed_is_slow();
}

TEST(GemmDecision, TheProbesFastestIsChosenAndRecorded) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "", kAll, packed_is_slow});
  EXPECT_EQ(record.implementation, "onednn");
  EXPECT_EQ(record.chosen_by, "probe");
  const core::NamedNumbers times{{"packed", 3000}, {"onednn", 2000}};
  EXPECT_EQ(record.probe_us, times);
  EXPECT_NE(gemm_text(record).find("--gemm onednn repeats"), std::string::npos);
}

TEST(GemmDecision, AFlagNeedsNoProbe) {
  for (const char* const flag : {"onednn", trainer::TrainOptions::kPerShape}) {
    const core::GemmRecord record = decide_gemm({flag, core::DType::f32, "packed", kAll, not_asked});
    EXPECT_EQ(record.implementation, flag);
    EXPECT_EQ(record.chosen_by, "flag");
  }
}

TEST(GemmDecision, AResumedRunKeepsToItsCheckpoint) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "packed", kAll, not_asked});
  EXPECT_EQ(record.implementation, "packed");
  EXPECT_EQ(record.chosen_by, "checkpoint");
}

TEST(GemmDecision, WhatTheCheckpointNamesMayBeMissingHere) {
  const core::GemmRecord record = decide_gemm({kProbeGemms, core::DType::f32, "onednn", {"packed"}, [] {
                                                 return std::vector<kernels::GemmTime>{{"packed", 0.002}};
                                               }});
  EXPECT_EQ(record.implementation, "packed");
  EXPECT_EQ(record.chosen_by, "probe");
}

TEST(GemmDecision, AMissingImplementationIsRefused) {
  try {
    decide_gemm({"onednn", core::DType::f32, "", {"packed"}, not_asked});
    FAIL() << "not refused";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("--gemm onednn is not available on this machine for f32"),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("packed"), std::string::npos);
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
