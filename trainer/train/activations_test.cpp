// Activations that ranks keep in parts, or off the device: the training is the same to the bit.
#include <gtest/gtest.h>

#include <string>

#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_with(const std::string& layout) {
  TrainOptions options = options_of({});
  options.layout = workload::parse_layout_over(options.layout, layout);
  return options;
}

// Gathering copies of the same rows changes no bit, whatever else the layout has.
TEST(PartitionedActivations, ChangeNoBitOfTheTraining) {
  for (const std::string layout :
       {"tp=2,batch=16,microbatch=4,recompute=full", "tp=4,batch=16,microbatch=8,recompute=full,recompute_every=3",
        "tp=2,pp=2,batch=16,microbatch=4,recompute=full,schedule=zb_h1",
        "tp=2,dp=2,batch=16,microbatch=4,recompute=full,zero=3,dtype=bf16",
        "tp=2,cp=2,batch=16,microbatch=8,recompute=full"}) {
    EXPECT_EQ(difference(run(options_with(layout + ",partition_activations=yes")), run(options_with(layout)), 0), "")
        << layout;
  }
}

}  // namespace
}  // namespace lockstep::trainer
