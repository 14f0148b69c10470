#include "bench/trainer/gemm_decision.h"

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

}  // namespace
}  // namespace lockstep::mini_train
