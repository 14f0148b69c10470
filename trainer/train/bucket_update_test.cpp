// Buckets that are updated one by one, each behind its gradients, give the bits of an update at the end of the step,
// and give their gradients' memory back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

// All ways in which a bucket's gradient comes to be complete: made by kernels alone, reduced once or with every
// microbatch, to a shard or whole, over replicas, summed once more at the end (tied embeddings on two stages, norms of
// sequence-parallel ranks), of two copies of a stage.
const std::vector<std::string>& layouts_per_bucket() {
  static const std::vector<std::string> kLayouts = {
      "dp=1,dtype=f32,bucket_mb=0.1",
      "dp=1,dtype=bf16,grad_dtype=bf16,bucket_mb=0.1,batch=16,microbatch=4",
      "dp=1,dtype=f32,recompute=full,recompute_every=2",
      "dp=2,dtype=f32,bucket_mb=0.1",
      "dp=2,dtype=f32,bucket_mb=0.1,overlap_grads=no,batch=16,microbatch=4",
      "dp=2,dtype=bf16,zero=1,bucket_mb=0.1,batch=16,microbatch=4",
      "dp=2,dtype=f32,zero=2,bucket_mb=0.1",
      "dp=3,dtype=bf16,grad_dtype=bf16,zero=2,bucket_mb=0.1,batch=6,microbatch=1",
      "dp=2,dtype=bf16,grad_dtype=bf16,zero=3,recompute=full,early_stop=yes",
      "dp=2,dtype=f32,zero=3,batch=8,microbatch=2",
      "dp=4,dtype=f32,zero=2,shard_ranks=2,batch=8,microbatch=1,bucket_mb=0.1",
      "dp=2,dtype=f32,zero=3,offload=host,batch=8,microbatch=2",
      "tp=2,dp=2,dtype=f32,sp=yes,zero=1,batch=8,microbatch=2,bucket_mb=0.1",
      "pp=2,dp=2,dtype=f32,zero=1,batch=8,microbatch=1,bucket_mb=0.1",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=zb_h1,bucket_mb=0.1",
      "pp=2,dp=2,dtype=bf16,batch=16,microbatch=1,zero=2,schedule=interleaved,chunks=2,bucket_mb=0.1",
      "pp=2,dp=2,dtype=f32,batch=8,microbatch=1,schedule=chimera,bucket_mb=0.1",
  };
  return kLayouts;
}

// Large enough for several buckets, of which the first has 1 MiB.
TrainOptions options_per_bucket(const std::string& layout, const std::string& update) {
  TrainOptions options = options_of({}, 2);
  options.model = workload::parse_model("layers=4,hidden=96,heads=4,vocabulary=256,sequence=16,dropout=no");
  options.layout = workload::parse_layout(layout + ",update=" + update);
  options.validation_sequences = 2;
  options.most_norm = 0;
  return options;
}

TEST(BucketUpdates, GiveTheBitsOfAnUpdateAtTheEnd) {
  for (const std::string& layout : layouts_per_bucket()) {
    const TrainResult at_end = run(options_per_bucket(layout, "step_end"));
    const TrainResult per_bucket = run(options_per_bucket(layout, "per_bucket"));
    for (std::size_t i = 0; i < at_end.steps.size(); ++i) {
      EXPECT_EQ(per_bucket.steps[i].loss, at_end.steps[i].loss) << layout << ", step " << i + 1;
    }
    EXPECT_EQ(per_bucket.validation_loss, at_end.validation_loss) << layout;
  }
}

TEST(BucketUpdates, MemoryIsPredictedToTheByteOnEveryRank) {
  for (const std::string& layout : layouts_per_bucket()) {
    EXPECT_EQ(memory_difference(options_per_bucket(layout, "per_bucket")), "") << layout;
  }
}

std::int64_t most_gradients(const std::string& layout, const std::string& update) {
  const TrainOptions options = options_per_bucket(layout, update);
  const TrainStep made = make_train_step(options.model, options.layout);
  const auto kind = static_cast<std::size_t>(parallel::MemoryKind::gradients);
  return memory_need(made, options.model, options.layout, 0).peak_of_each()[kind];
}

// Without accumulation a large and a small bucket's gradients are there at most; with it, all.
TEST(BucketUpdates, GradientsAreGivenUpOneBucketAfterTheOther) {
  const std::string layout = "dp=2,dtype=f32,bucket_mb=0.1";
  for (const std::string zero : {"0", "2"}) {
    const std::string sharded = layout + ",zero=" + zero;
    EXPECT_LT(most_gradients(sharded, "per_bucket"), most_gradients(sharded, "step_end")) << zero;
  }
  const std::string accumulated = layout + ",batch=8,microbatch=2";
  EXPECT_EQ(most_gradients(accumulated, "per_bucket"), most_gradients(accumulated, "step_end"));
}

std::string refusal(const TrainOptions& options) {
  try {
    checked(options);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(BucketUpdates, WhatNeedsTheWholeStepIsRefused) {
  TrainOptions clips = options_per_bucket("dp=2,dtype=f32", "per_bucket");
  clips.most_norm = 1;
  EXPECT_NE(refusal(clips).find("--clip 1, which needs the norm of all gradients"), std::string::npos);
  EXPECT_NE(refusal(options_per_bucket("dp=2,dtype=f16", "per_bucket")).find("dtype is f16"), std::string::npos);
  EXPECT_NE(refusal(options_per_bucket("pp=2,dtype=f32,batch=4,microbatch=1,schedule=pipedream", "per_bucket"))
                .find("pipedream"),
            std::string::npos);
  TrainOptions servers = options_per_bucket("dp=2,dtype=f32", "per_bucket");
  servers.sync = parse_sync("server:servers=2");
  EXPECT_NE(refusal(servers).find("--sync server"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
