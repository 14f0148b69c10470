// Training with each optimizer: the same bits in every layout that only moves or shards its states, memory to the byte,
// and checkpoints that name it. tests/test_optimizers.py compares the numbers with PyTorch's.
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "testing/trainer/run.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_with(std::string_view optimizer, const std::string& layout, std::int64_t steps = 4) {
  TrainOptions options = options_over("optimizer=" + std::string(optimizer) + "," + layout, steps);
  options.model.layers = 2;
  options.optimizer = kernels::rule_of(options.layout.optimizer).usual;
  options.optimizer.decay = 0.1;
  options.validation_sequences = 2;
  options.most_norm = 0;  // the norm's sum has another order in each stage of ZeRO
  return options;
}

TEST(Optimizers, GiveTheSameBitsWhereverTheirStatesAre) {
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    for (const std::string dtype : {"f32", "bf16"}) {
      const std::string layout = "dp=2,batch=16,microbatch=8,bucket_mb=0.02,dtype=" + dtype;
      const TrainResult whole = run(options_with(optimizer, layout));
      EXPECT_LT(whole.steps.back().loss, whole.steps.front().loss) << optimizer << " learns";
      for (const std::string more : {"zero=1", "zero=2", "zero=3", "zero=1,offload=host", "zero=3,offload=file"}) {
        const bool has_none = optimizer == "sgd" && dtype == "f32" && more.find("offload") != std::string::npos;
        if (has_none) continue;  // refused, as in the last test
        EXPECT_EQ(difference(whole, run(options_with(optimizer, layout + "," + more)), 0, Norms::ignored), "")
            << optimizer << "," << layout << "," << more;
      }
    }
  }
}

TEST(Optimizers, GiveTheSameBitsWithUpdatesPerBucket) {
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    const std::string layout = "dp=2,batch=16,microbatch=8,bucket_mb=0.02,update=";
    EXPECT_EQ(difference(run(options_with(optimizer, layout + "per_bucket")),
                         run(options_with(optimizer, layout + "step_end")), 0, Norms::ignored),
              "")
        << optimizer;
  }
}

TEST(Optimizers, DelayedUpdatesAreTheSameOnTheHostAndInFiles) {
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    const std::string layout = "dp=2,batch=16,microbatch=4,zero=2,dtype=bf16,delayed_update=yes,offload=";
    EXPECT_EQ(difference(run(options_with(optimizer, layout + "optimizer:host+gradients:host")),
                         run(options_with(optimizer, layout + "optimizer:file+gradients:file")), 0),
              "")
        << optimizer;
  }
}

TEST(Optimizers, EachIsAnotherRun) {
  std::set<double> losses;
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    losses.insert(run(options_with(optimizer, "batch=16,microbatch=16")).validation_loss);
  }
  EXPECT_EQ(losses.size(), kernels::kOptimizerNames.size());
}

TEST(Optimizers, MemoryIsPredictedToTheByte) {
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    for (const std::string layout :
         {"dp=1,dtype=f32", "dp=2,dtype=bf16,zero=1,batch=8,microbatch=2", "dp=3,dtype=f32,zero=2,batch=6,microbatch=1",
          "dp=2,dtype=bf16,grad_dtype=bf16,zero=3,offload=file,batch=8,microbatch=2,bucket_mb=0.02",
          "dp=2,dtype=bf16,zero=3,offload=optimizer:host+gradients:host,delayed_update=yes,batch=4,microbatch=1",
          "pp=2,dp=2,dtype=f32,zero=1,batch=8,microbatch=1,bucket_mb=0.1"}) {
      EXPECT_EQ(memory_difference(options_with(optimizer, layout, 2)), "") << optimizer << ", " << layout;
    }
  }
}

TEST(Optimizers, StatesTakeFourBytesEachPerParameter) {
  const auto bytes_of = [](std::string_view optimizer, const std::string& dtype) {
    const TrainOptions options = options_with(optimizer, "dp=1,dtype=" + dtype);
    const TrainStep made = make_train_step(options.model, options.layout);
    const std::int64_t bytes = memory_need(made, options.model, options.layout, 0)
                                   .now()[static_cast<std::size_t>(parallel::MemoryKind::optimizer)];
    return static_cast<double>(bytes) / static_cast<double>(parameters_of(options.model));
  };
  const std::map<std::string_view, int> states{{"sgd", 0}, {"momentum", 1}, {"rmsprop", 1}, {"adam", 2}, {"adamw", 2}};
  for (const auto& [optimizer, count] : states) {
    EXPECT_NEAR(bytes_of(optimizer, "f32"), 4 * count, 0.01) << optimizer;
    EXPECT_NEAR(bytes_of(optimizer, "bf16"), 4 * count + 4, 0.01) << optimizer;
  }
}

TEST(Optimizers, ACheckpointGoesOnInAnyLayoutAndWithItsOwnOptimizerOnly) {
  for (const std::string_view optimizer : kernels::kOptimizerNames) {
    const core::TemporaryFolder folder;
    const TrainResult whole = run(options_with(optimizer, "dp=2,batch=16,microbatch=8,zero=1"));
    TrainOptions first = options_with(optimizer, "dp=2,batch=16,microbatch=8,zero=1", 2);
    first.rate.steps = 4;
    first.checkpoint_folder = folder.path();
    const TrainResult begun = run(first);
    for (const std::string layout : {"dp=2,batch=16,microbatch=8,zero=3", "dp=2,batch=16,microbatch=8"}) {
      TrainOptions rest = options_with(optimizer, layout);
      rest.resume = folder.path();
      TrainResult in_two = run(rest);
      in_two.steps.insert(in_two.steps.begin(), begun.steps.begin(), begun.steps.end());
      EXPECT_EQ(difference(whole, in_two, 0, Norms::ignored), "") << optimizer << ", " << layout;
    }
    for (const std::string_view other : kernels::kOptimizerNames) {
      if (other == optimizer) continue;
      TrainOptions rest = options_with(other, "dp=2,batch=16,microbatch=8");
      rest.resume = folder.path();
      const std::string expected = " has the states of the optimizer " + std::string(optimizer) +
                                   ", and this run's is " + std::string(other) + "; allowed: --optimizer " +
                                   std::string(optimizer);
      EXPECT_NE(refusal_of(rest).find(expected), std::string::npos) << refusal_of(rest);
    }
  }
}

// Nothing to offload.
TEST(Optimizers, SgdInF32HasNoStatesToOffload) {
  const std::string refusal = refusal_of(options_with("sgd", "dp=2,batch=16,microbatch=8,zero=1,offload=host"));
  EXPECT_NE(refusal.find("optimizer=sgd has no states in f32; allowed: "), std::string::npos) << refusal;
}

}  // namespace
}  // namespace lockstep::trainer
