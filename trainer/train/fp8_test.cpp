// Training with products in 8-bit floats.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/folder_for_tests.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_for(const std::string& layout, std::int64_t steps = 30) {
  TrainOptions options = options_of(workload::parse_layout("dtype=f32,batch=16,microbatch=8," + layout), steps);
  return options;
}

// The curve is that of f32 within a few percent, and not the same.
TEST(Fp8Training, LearnsNearlyAsF32) {
  const TrainResult wide = run(options_for("fp8=none"));
  for (const std::string layout : {"fp8=tensor", "fp8=row", "fp8=block", "fp8=tensor,fp8_delayed=yes"}) {
    const TrainResult narrow = run(options_for(layout));
    EXPECT_LT(narrow.steps.back().loss, 0.8 * narrow.steps.front().loss) << layout;
    EXPECT_NEAR(narrow.steps.back().loss, wide.steps.back().loss, 0.03 * wide.steps.back().loss) << layout;
    EXPECT_NE(narrow.steps.back().loss, wide.steps.back().loss) << layout;
  }
}

// Scales are powers of two, so that bf16 holds what codes decode to.
TEST(Fp8Training, OfBf16IsNearlyAsOfF32) {
  TrainOptions options = options_for("fp8=tensor");
  const TrainResult wide = run(options);
  options.layout.compute = core::DType::bf16;
  EXPECT_EQ(difference(wide, run(options), 2e-2), "");
}

// Encoded values do not depend on which rank has a stage, nor on what is sharded.
TEST(Fp8Training, PipelinesAndShardsChangeNothing) {
  for (const std::string scaling : {"fp8=row", "fp8=tensor,fp8_delayed=yes"}) {
    const TrainResult one = run(options_for(scaling, 5));
    EXPECT_EQ(difference(one, run(options_for("pp=2," + scaling, 5)), 1e-5), "") << scaling;
    EXPECT_EQ(difference(one, run(options_for("recompute=full," + scaling, 5)), 0), "") << scaling;
  }
  const TrainResult replicas = run(options_for("dp=2,fp8=row", 5));
  EXPECT_EQ(difference(replicas, run(options_for("dp=2,zero=3,fp8=row", 5)), 1e-5), "");
}

// A validation in between raises nothing that the next step scales by.
TEST(Fp8Training, ValidationLeavesNoTrace) {
  TrainOptions options = options_for("fp8=tensor,fp8_delayed=yes", 6);
  const TrainResult without = run(options);
  options.validate_every = 1;
  EXPECT_EQ(difference(without, run(options), 0), "");
}

// Losses of three steps and, resumed from their checkpoint, of the rest.
std::vector<double> resumed(const std::string& before, const std::string& after, std::int64_t steps) {
  const core::TemporaryFolder folder;
  TrainOptions first = options_for(before, steps);
  first.steps = 3;
  first.checkpoint_folder = folder / "checkpoints";
  TrainOptions rest = options_for(after, steps);
  rest.resume = first.checkpoint_folder;
  std::vector<double> losses;
  for (const TrainOptions& options : {first, rest}) {
    for (const StepReport& step : run(options).steps) losses.push_back(step.loss);
  }
  return losses;
}

TEST(Fp8Training, HistoryIsInCheckpoints) {
  constexpr std::int64_t kTaken = 8;
  for (const std::string layout : {"", "dp=2,zero=1,", "pp=2,tp=2,"}) {
    const std::string delayed = layout + "fp8=tensor,fp8_delayed=yes,fp8_history=3";
    std::vector<double> at_once;
    for (const StepReport& step : run(options_for(delayed, kTaken)).steps) at_once.push_back(step.loss);
    EXPECT_EQ(resumed(delayed, delayed, kTaken), at_once) << layout;
    EXPECT_NE(resumed(delayed, layout + "fp8=tensor,fp8_delayed=yes,fp8_history=4", kTaken), at_once)
        << layout << ": of another length, which begins anew";
  }
}

TEST(Fp8Training, RefusalsSayWhatIsAllowed) {
  const auto refusal = [](const std::string& layout) {
    try {
      checked(options_for(layout));
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal("fp8=row,fp8_delayed=yes").find("fp8_delayed is yes; allowed: no, or fp8=tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
