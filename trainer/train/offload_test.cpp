// The optimizer's states in a file or in the host's memory: the training is the same to the bit, and what goes wrong
// with memory or files is told before a checkpoint is touched.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "trainer/checkpoint/files_for_tests.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_with(const std::string& layout, std::int64_t steps = kSteps) {
  TrainOptions options = options_of({}, steps);
  options.layout = workload::parse_layout_over(options.layout, layout);
  return options;
}

void expect_same_bits(const TrainResult& one, const TrainResult& other, const std::string& what) {
  ASSERT_EQ(one.steps.size(), other.steps.size()) << what;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].loss, other.steps[i].loss) << what << ", step " << i;
    EXPECT_EQ(one.steps[i].norm, other.steps[i].norm) << what << ", step " << i;
  }
  EXPECT_EQ(one.validation_loss, other.validation_loss) << what;
}

TEST(Offload, OfTheOptimizerChangesNoBit) {
  for (const std::string layout : {"dp=2,microbatch=4,batch=8", "dp=2,microbatch=4,batch=8,zero=1,dtype=bf16",
                                   "dp=2,microbatch=4,batch=8,zero=3,dtype=bf16", "pp=2,tp=2,batch=8,microbatch=4"}) {
    const TrainResult here = run(options_with(layout));
    for (const char* where : {",offload=host", ",offload=file"}) {
      expect_same_bits(run(options_with(layout + where)), here, layout + where);
    }
  }
}

// Written from files, read to the device, and the other way round.
TEST(Offload, CheckpointsGoFromOnePlaceToTheOther) {
  const std::string layout = "dp=2,microbatch=4,batch=8,zero=2,dtype=bf16";
  const TrainResult whole = run(options_with(layout, 6));
  for (const bool first_in_file : {false, true}) {
    const TemporaryFolder folder;
    TrainOptions first = options_with(layout + (first_in_file ? ",offload=file" : ""), 3);
    first.rate.steps = 6;
    first.checkpoint_folder = folder.path();
    run(first);
    TrainOptions rest = options_with(layout + (first_in_file ? "" : ",offload=file"), 6);
    rest.resume = folder.path();
    const TrainResult resumed = run(rest);
    ASSERT_EQ(resumed.steps.size(), 3u);
    for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(resumed.steps[s].loss, whole.steps[s + 3].loss) << s;
  }
}

std::string refusal_of(const TrainOptions& options) {
  try {
    run(options);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Offload, WhatDoesNotFitTheDeviceIsRefusedAndFitsWithIt) {
  TrainOptions options = options_with("dp=1,microbatch=1,batch=1,dtype=bf16");
  const auto made = make_train_step(options.model, options.layout);
  const std::int64_t needed = parallel::total_of(most_needed(made, options.model, options.layout));
  options.device_memory = needed - 1;
  EXPECT_NE(refusal_of(options).find(" needs " + std::to_string(needed) + " bytes on a rank, and --device-memory is " +
                                     std::to_string(needed - 1) + "; allowed: "),
            std::string::npos);
}

TEST(Offload, AFolderThatIsNotThereIsOneLineAndLeavesTheCheckpoint) {
  const TemporaryFolder folder;
  TrainOptions first = options_with("dp=2,microbatch=4,batch=8,zero=1", 2);
  first.checkpoint_folder = folder.path();
  run(first);
  TrainOptions rest = options_with("dp=2,microbatch=4,batch=8,zero=1,offload=file", 4);
  rest.resume = folder.path();
  rest.checkpoint_folder = folder.path();
  rest.offload_folder = folder.path() + "/none";
  EXPECT_NE(
      refusal_of(rest).find("offload folder '" + rest.offload_folder + "': no file can be made there: No such file"),
      std::string::npos);
  rest.offload_folder.clear();
  EXPECT_EQ(run(rest).steps.size(), 2u) << "the checkpoint is whole";
}

}  // namespace
}  // namespace lockstep::trainer
