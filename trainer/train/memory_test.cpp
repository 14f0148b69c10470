// Updates of single buckets, and the memory of a step, which is predicted to the byte.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "testing/trainer/run.h"

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

// Buckets that are updated individually, each after its gradients, give the bits of an update at the end of the step,
// and give their gradients' memory back.
TEST(BucketUpdates, GiveTheBitsOfAnUpdateAtTheEnd) {
  for (const std::string& layout : layouts_per_bucket()) {
    EXPECT_EQ(difference(run(options_per_bucket(layout, "step_end")), run(options_per_bucket(layout, "per_bucket")), 0,
                         Norms::ignored),
              "")
        << layout;
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

TEST(BucketUpdates, WhatNeedsTheWholeStepIsRefused) {
  TrainOptions clips = options_per_bucket("dp=2,dtype=f32", "per_bucket");
  clips.most_norm = 1;
  EXPECT_NE(refusal_of(clips).find("--clip 1, which needs the norm of all gradients"), std::string::npos);
  EXPECT_NE(refusal_of(options_per_bucket("dp=2,dtype=f16", "per_bucket")).find("dtype is f16"), std::string::npos);
  EXPECT_NE(refusal_of(options_per_bucket("pp=2,dtype=f32,batch=4,microbatch=1,schedule=pipedream", "per_bucket"))
                .find("pipedream"),
            std::string::npos);
  TrainOptions servers = options_per_bucket("dp=2,dtype=f32", "per_bucket");
  servers.sync = parse_sync("server:servers=2");
  EXPECT_NE(refusal_of(servers).find("--sync server"), std::string::npos);
}

// Memory is predicted to the byte: what every rank counts, by kind, was predicted before it ran.

// Each pair of parallelism, ZeRO stage, kind of schedule, recomputation and dtype that bears on another is somewhere.
const std::vector<std::string>& layouts() {
  static const std::vector<std::string> kLayouts = {
      "dp=1,dtype=f32",
      "dp=1,dtype=f32,batch=4,microbatch=2",
      "dp=1,dtype=bf16,grad_dtype=bf16,batch=2,microbatch=1",
      "dp=2,dtype=f32,bucket_mb=0.02",
      "dp=2,dtype=bf16,zero=1,bucket_mb=0.02",
      "dp=2,dtype=f32,zero=1,batch=8,microbatch=2,overlap_grads=no",
      "dp=2,dtype=f32,zero=2,batch=8,microbatch=2,bucket_mb=0.02",
      "dp=3,dtype=bf16,grad_dtype=bf16,zero=2,batch=6,microbatch=1,bucket_mb=0.02",
      "dp=2,dtype=f32,zero=3,batch=8,microbatch=2",
      "dp=2,dtype=bf16,grad_dtype=bf16,zero=3,recompute=full,early_stop=yes",
      "dp=2,dtype=f32,zero=3,reshard=no,recompute=selective",
      "dp=4,dtype=bf16,zero=3,shard_ranks=2,batch=8,microbatch=1,overlap_params=no",
      "dp=4,dtype=f32,zero=2,shard_ranks=2,batch=8,microbatch=1",
      "dp=4,dtype=bf16,zero=3,secondary_ranks=2,batch=8,microbatch=1",
      "pp=2,dp=4,dtype=f32,zero=3,secondary_ranks=2,batch=8,microbatch=1,recompute=full",
      "dp=1,dtype=f32,recompute=full,early_stop=yes",
      "dp=1,dtype=f32,recompute=full",
      "dp=1,dtype=bf16,recompute=full,recompute_every=2,batch=2,microbatch=1",
      "dp=1,dtype=f32,recompute=full,recompute_every=3,early_stop=yes",
      "dp=1,dtype=bf16,recompute=selective",
      "tp=2,dtype=f32,batch=4,microbatch=2",
      "tp=2,dtype=bf16,sp=yes,recompute=selective",
      "tp=4,dtype=f32,sp=yes",
      "tp=2,dtype=f32,sp=yes,recompute=full,recompute_every=2,overlap_tp=no",
      "tp=2,dp=2,dtype=bf16,grad_dtype=bf16,sp=yes,zero=2,batch=8,microbatch=2",
      "tp=2,dp=2,dtype=f32,sp=yes,zero=1,recompute=full,early_stop=yes",
      "tp=2,dtype=f32,batch=4,microbatch=2,recompute=full,early_stop=yes,partition_activations=yes",
      "tp=4,dtype=bf16,recompute=full,recompute_every=3,partition_activations=yes,batch=2,microbatch=1",
      "tp=2,pp=2,dtype=f32,batch=8,microbatch=1,schedule=zb_h1,recompute=full,partition_activations=yes",
      "tp=2,dp=2,dtype=bf16,grad_dtype=bf16,batch=8,microbatch=2,zero=3,recompute=full,partition_activations=yes",
      "pp=2,dtype=f32,batch=4,microbatch=1",
      "pp=2,dtype=bf16,batch=4,microbatch=1,overlap_p2p=yes,schedule=gpipe",
      "pp=3,dtype=f32,batch=6,microbatch=1,layers=1:2:1,overlap_p2p=yes",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=interleaved,chunks=2",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=zb_h1",
      "pp=2,dtype=bf16,grad_dtype=bf16,batch=8,microbatch=1,schedule=zb_h2,recompute=full,early_stop=yes",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=zb_v",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=zb_v,recompute=selective,tp=2,sp=yes",
      "pp=2,dp=2,dtype=bf16,batch=8,microbatch=1,zero=1,schedule=zb_h1",
      "pp=2,dp=2,dtype=f32,batch=8,microbatch=1,zero=2,schedule=1f1b,bucket_mb=0.02",
      "pp=2,dp=2,dtype=bf16,grad_dtype=bf16,batch=8,microbatch=1,zero=3,schedule=interleaved,chunks=2",
      "pp=2,dp=2,dtype=f32,batch=8,microbatch=1,zero=3,schedule=zb_h1,recompute=full",
      "dp=2,dtype=bf16,zero=3,offload=file,batch=8,microbatch=2,bucket_mb=0.02",
      "pp=2,dp=2,dtype=f32,zero=1,offload=host,batch=8,microbatch=2",
      "dp=1,dtype=f32,offload=activations:host,batch=4,microbatch=2",
      "dp=1,dtype=bf16,offload=activations:file,offload_ahead=0,recompute=selective,batch=2,microbatch=1",
      "tp=2,dtype=bf16,sp=yes,offload=activations:host,batch=4,microbatch=1",
      "tp=2,dtype=f32,recompute=full,partition_activations=yes,offload=activations:host",
      "dp=2,dtype=f32,zero=3,recompute=full,offload=activations:file,batch=8,microbatch=2",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=gpipe,offload=activations:host,offload_ahead=2",
      "pp=2,dp=2,dtype=bf16,batch=8,microbatch=1,zero=2,schedule=zb_h1,offload=activations:host",
      "pp=2,dtype=f32,batch=8,microbatch=1,schedule=interleaved,chunks=2,offload=activations:host",
      "dp=1,dtype=f32,mlp_tiles=4,batch=4,microbatch=2",
      "dp=2,dtype=bf16,zero=3,mlp_tiles=4,batch=8,microbatch=2,recompute=full,early_stop=yes",
      "dp=2,dtype=f32,zero=3,mlp_tiles=2,overlap_params=no,recompute=full,offload=activations:host",
      "tp=2,dp=2,dtype=bf16,grad_dtype=bf16,zero=3,mlp_tiles=4,batch=8,microbatch=2",
      "pp=2,dp=2,dtype=f32,batch=8,microbatch=1,zero=3,schedule=zb_h1,mlp_tiles=2",
      "dp=2,dtype=bf16,zero=2,offload=gradients:host,batch=8,microbatch=2,bucket_mb=0.02",
      "dp=2,dtype=f32,zero=3,offload=parameters:file,batch=8,microbatch=2,recompute=full",
      "dp=2,dtype=bf16,grad_dtype=bf16,zero=3,offload=optimizer:host+gradients:file+parameters:host,batch=4,microbatch="
      "1",
      "dp=2,dtype=bf16,zero=3,offload=optimizer:host+gradients:host,delayed_update=yes,batch=4,microbatch=1",
      "dp=4,dtype=f32,zero=3,shard_ranks=2,offload=gradients:host+parameters:host,offload_ahead=2,batch=8,microbatch=1",
      "dp=1,dtype=f32,fp8=tensor",
      "dp=1,dtype=bf16,fp8=row,recompute=full,early_stop=yes",
      "tp=2,dtype=bf16,sp=yes,fp8=block,recompute=selective",
      "pp=2,dp=2,dtype=bf16,batch=8,microbatch=1,zero=2,schedule=zb_h1,fp8=tensor,fp8_delayed=yes",
      "pp=4,dtype=f32,batch=8,microbatch=1,schedule=bpipe",
      "pp=4,dtype=bf16,batch=6,microbatch=1,schedule=bpipe,recompute=full,overlap_p2p=yes",
      "pp=4,tp=2,dp=2,dtype=f32,sp=yes,zero=1,batch=16,microbatch=2,schedule=bpipe,recompute=selective",
      "pp=2,dtype=f32,batch=2,microbatch=1,schedule=terapipe,slices=4",
      "pp=2,dtype=bf16,batch=4,microbatch=2,schedule=seq1f1b,slices=3,recompute=selective",
      "pp=2,tp=2,dtype=f32,sp=yes,batch=4,microbatch=2,schedule=seq1f1b,slices=7:5:4",
      "pp=2,dp=2,dtype=bf16,grad_dtype=bf16,zero=2,batch=4,microbatch=1,schedule=seq1f1b_i,chunks=2,slices=2",
      "pp=2,dtype=f32,batch=2,microbatch=1,schedule=seq1f1b,slices=2,fp8=tensor,fp8_delayed=yes",
      "tp=2,pp=2,dp=2,dtype=f32,sp=yes,batch=8,microbatch=2,zero=3",
      "tp=2,pp=2,dp=2,dtype=bf16,grad_dtype=bf16,batch=8,microbatch=2,zero=2,schedule=zb_h1",
  };
  return kLayouts;
}

TrainOptions options_for(const std::string& layout) {
  TrainOptions options = options_of({}, 2);
  options.layout = workload::parse_layout(layout);
  return options;
}

TEST(MemoryOfAStep, IsPredictedToTheByteOnEveryRank) {
  for (const std::string& layout : layouts()) EXPECT_EQ(memory_difference(options_for(layout)), "") << layout;
}

TEST(MemoryOfAStep, OfALlamaIsPredictedToTheByteOnEveryRank) {
  for (const std::string& layout : layouts()) {
    TrainOptions options = options_for(layout);
    options.model = tiny_llama();
    EXPECT_EQ(memory_difference(options), "") << layout;
  }
}

// Where one thread runs all, memory is held as in the list of tasks, and tasks run in that order.
TEST(MemoryOfAStep, OfOneThreadIsWhatHappened) {
  for (const std::string layout :
       {"dp=1,dtype=f32", "tp=2,dtype=bf16,sp=yes,batch=2,microbatch=1,recompute=full", "dp=2,dtype=f32,zero=1"}) {
    TrainOptions options = options_for(layout);
    options.validation_sequences = 1;
    const TrainResult result = run(options);
    EXPECT_EQ(parallel::total_of(result.steps.back().peak_bytes), result.steps.back().most_bytes) << layout;
  }
}

// A layer more is seen, and so is recomputation.
TEST(MemoryOfAStep, OfAnotherStepIsAnother) {
  const TrainOptions options = options_for("dp=1,dtype=f32");
  const auto need_of = [](const workload::Model& model, const workload::Layout& layout) {
    return parallel::total_of(memory_need(make_train_step(model, layout), model, layout, 0).at_peak());
  };
  workload::Model larger = options.model;
  ++larger.layers;
  EXPECT_GT(need_of(larger, options.layout), need_of(options.model, options.layout));
  workload::Layout again = options.layout;
  again.recompute = workload::Recompute::full;
  EXPECT_LT(need_of(options.model, again), need_of(options.model, options.layout));
}

}  // namespace
}  // namespace lockstep::trainer
