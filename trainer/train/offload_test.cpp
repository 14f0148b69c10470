// Activations that ranks keep in parts or off the device, MLPs in tiles, and offloaded states, gradients and weights:
// the training is the same, mostly to the bit.
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "testing/trainer/run.h"

namespace lockstep::trainer {
namespace {

std::string error_of_run(const TrainOptions& options, const TrainObserver& observer = {}) {
  return error_of([&] { run(options, observer); });
}

// Gathering copies of the same rows changes no bit, whatever else the layout has.
TEST(PartitionedActivations, ChangeNoBitOfTheTraining) {
  for (const std::string layout :
       {"tp=2,batch=16,microbatch=4,recompute=full", "tp=4,batch=16,microbatch=8,recompute=full,recompute_every=3",
        "tp=2,pp=2,batch=16,microbatch=4,recompute=full,schedule=zb_h1",
        "tp=2,dp=2,batch=16,microbatch=4,recompute=full,zero=3,dtype=bf16",
        "tp=2,cp=2,batch=16,microbatch=8,recompute=full"}) {
    EXPECT_EQ(difference(run(options_over(layout + ",partition_activations=yes", 3)), run(options_over(layout, 3)), 0),
              "")
        << layout;
  }
}

// Activations that were copied off the device come back unchanged.
TEST(OffloadedActivations, ChangeNoBitOfTheTraining) {
  for (const std::string layout :
       {"batch=16,microbatch=4", "batch=16,microbatch=4,recompute=full",
        "batch=16,microbatch=4,recompute=selective,dtype=bf16",
        "dp=2,batch=16,microbatch=4,zero=3,recompute=full,recompute_every=2", "tp=2,batch=16,microbatch=8,sp=yes",
        "tp=2,batch=16,microbatch=4,recompute=full,partition_activations=yes",
        "pp=2,batch=16,microbatch=2,schedule=gpipe", "pp=2,dp=2,batch=16,microbatch=2,schedule=zb_h1,zero=2",
        "pp=2,batch=16,microbatch=2,schedule=zb_v", "batch=16,microbatch=4,fp8=tensor"}) {
    const TrainResult here = run(options_over(layout, 3));
    for (const char* where : {",offload=activations:host", ",offload=activations:file,offload_ahead=2"}) {
      EXPECT_EQ(difference(run(options_over(layout + where, 3)), here, 0), "") << layout << where;
    }
  }
}

TEST(OffloadedActivations, OfALlamaChangeNoBit) {
  TrainOptions options = options_over("batch=16,microbatch=4", 3);
  options.model = tiny_llama();
  const TrainResult here = run(options);
  options.layout = workload::parse_layout_over(options.layout, "offload=activations:file,offload_ahead=0");
  EXPECT_EQ(difference(run(options), here, 0), "");
}

// A budget that the activations alone are beyond, and that is enforced at each allocation.
TEST(OffloadedActivations, TrainWhatDoesNotFitTheDevice) {
  TrainOptions options = options_over("batch=16,microbatch=16", 3);
  options.model = workload::parse_model("layers=12,hidden=32,heads=4,vocabulary=256,sequence=32,dropout=no");
  options.layout.offload_ahead = 1;
  const auto needed = [&] {
    const auto made = make_train_step(options.model, options.layout);
    return most_needed(made, options.model, options.layout);
  };
  const parallel::BytesByKind here = needed();
  const TrainResult with_room = run(options);
  options.layout = workload::parse_layout_over(options.layout, "offload=activations:host");
  const std::int64_t offloaded = parallel::total_of(needed());
  options.device_memory = offloaded + offloaded / 8;  // sizes of blocks are rounded up
  EXPECT_LT(options.device_memory, here[static_cast<std::size_t>(parallel::MemoryKind::activations)]);
  const TrainResult result = run(options);
  EXPECT_EQ(difference(result, with_room, 0), "");
  EXPECT_LE(result.steps.back().most_bytes, offloaded);
  EXPECT_GT(result.steps.back().copied_bytes, here[static_cast<std::size_t>(parallel::MemoryKind::activations)]);
  options.layout.offload = {};
  EXPECT_THROW(run(options), core::Error);
}

// Before anything is trained.
TEST(OffloadedActivations, AreRefusedWhereTheyCannotLeave) {
  TrainOptions options = options_over("cp=2,batch=16,microbatch=8,offload=activations:host", 3);
  EXPECT_EQ(error_of_run(options),
            "mini_train does not have offload=activations:host of activations of context-parallel ranks that are not "
            "recomputed; allowed: recompute=full, or activations on the device");
  options.layout = workload::parse_layout_over(options.layout, "recompute=full");
  EXPECT_EQ(error_of_run(options), "");
  options.layout = workload::parse_layout_over(options.layout, "offload=activations:file");
  options.offload_folder = "/nowhere";
  EXPECT_EQ(error_of_run(options).find("offload folder '/nowhere': cannot create a file"), 0u);
}

// MLPs that run tile by tile: the same training, but for the order of sums, with a tile's weights gathered at a time.

TEST(TiledMlp, TrainsAsTheWholeButForTheOrderOfSums) {
  for (const std::string layout :
       {"batch=16,microbatch=4", "batch=16,microbatch=4,recompute=full", "dp=2,batch=16,microbatch=4,zero=3",
        "tp=2,batch=16,microbatch=8", "pp=2,batch=16,microbatch=2,schedule=zb_h1"}) {
    for (const bool llama : {false, true}) {
      TrainOptions options = options_over(layout, 3);
      if (llama) options.model = tiny_llama();
      const TrainResult whole = run(options);
      options.layout.mlp_tiles = 4;
      EXPECT_EQ(difference(run(options), whole, 1e-5), "") << layout;
    }
  }
}

// Only sums of the first product's input gradient and of the second's output are in another order.
TEST(TiledMlp, OfOneTileIsTheWhole) {
  TrainOptions options = options_over("batch=16,microbatch=4", 3);
  const TrainResult whole = run(options);
  options.layout = workload::parse_layout_over(options.layout, "mlp_tiles=1");
  EXPECT_EQ(difference(run(options), whole, 0), "");
}

// Besides its shard a rank has one unit at a time: a tile of a wide MLP.
TEST(TiledMlp, GathersATileAtATime) {
  const workload::Model model =
      workload::parse_model("layers=2,hidden=32,heads=4,ffn_hidden=2048,vocabulary=64,sequence=16,dropout=no");
  const auto gathered = [&](std::int32_t tiles) {
    workload::Layout layout = workload::parse_layout("dp=4,dtype=f32,zero=3,overlap_params=no,batch=4");
    layout.mlp_tiles = tiles;
    const auto made = make_train_step(model, layout);
    constexpr auto kWeights = static_cast<std::size_t>(parallel::MemoryKind::weights);
    const workload::HeldBytes held = memory_need(made, model, layout, 0);
    return held.peak_of_each()[kWeights] - held.now()[kWeights];
  };
  const std::int64_t mlp = std::int64_t{4} * (2 * 32 * 2048 + 2048 + 32);
  EXPECT_GE(gathered(1), mlp);
  EXPECT_LE(gathered(8), mlp / 8 + 4 * 2 * 64 * 32) << "and the words, which stay to the end of the step";
}

TEST(TiledMlp, RefusesFilesOfWholeMatrices) {
  TrainOptions options = options_over("batch=16,microbatch=4,mlp_tiles=2", 3);
  options.export_file = "weights.safetensors";
  EXPECT_EQ(refusal_of(options),
            "mlp_tiles is 2 together with --init-from or --export, whose files have whole matrices; allowed: "
            "mlp_tiles=1");
}

// The optimizer's states in a file or in the host's memory: the training is the same to the bit, and what goes wrong
// with memory or files is reported before a checkpoint is touched.

TEST(Offload, OfTheOptimizerChangesNoBit) {
  for (const std::string layout : {"dp=2,microbatch=4,batch=8", "dp=2,microbatch=4,batch=8,zero=1,dtype=bf16",
                                   "dp=2,microbatch=4,batch=8,zero=3,dtype=bf16", "pp=2,tp=2,batch=8,microbatch=4"}) {
    const TrainResult here = run(options_over(layout));
    for (const char* where : {",offload=host", ",offload=file"}) {
      EXPECT_EQ(difference(run(options_over(layout + where)), here, 0), "") << layout << where;
    }
  }
}

// Gradients leave while the backward runs, weights come to be gathered.
TEST(Offload, OfGradientsAndWeightsChangesNoBit) {
  const auto expect_same_with = [](const std::string& layout, const std::vector<std::string>& offloads) {
    const TrainResult here = run(options_over(layout));
    for (const std::string& offload : offloads) {
      EXPECT_EQ(difference(run(options_over(layout + ",offload=" + offload)), here, 0), "") << layout << offload;
    }
  };
  expect_same_with("dp=2,microbatch=2,batch=8,zero=2,dtype=bf16",
                   {"gradients:host", "gradients:file", "optimizer:host+gradients:file"});
  expect_same_with("dp=2,microbatch=2,batch=8,zero=3,dtype=bf16,grad_dtype=bf16",
                   {"parameters:host", "optimizer:file+gradients:file+parameters:file",
                    "optimizer:host+gradients:host+parameters:file,offload_ahead=3"});
  expect_same_with("dp=2,microbatch=4,batch=8,zero=3,dtype=f32",
                   {"parameters:file", "gradients:host+parameters:host,offload_ahead=0"});
  expect_same_with("dp=4,microbatch=1,batch=8,zero=3,shard_ranks=2,dtype=f32",
                   {"optimizer:host+gradients:file+parameters:host"});
  expect_same_with("pp=2,dp=2,microbatch=2,batch=8,zero=3,dtype=f16", {"optimizer:file+parameters:file"});
}

// Each step's gradients are taken at the weights before the last update. When it runs does not show.
TEST(Offload, ADelayedUpdateIsTheSameWhereverItsStatesAre) {
  const std::string layout = "dp=2,microbatch=2,batch=8,dtype=bf16";
  const std::string host = ",delayed_update=yes,offload=optimizer:host+gradients:host";
  const std::string files = ",delayed_update=yes,offload=optimizer:file+gradients:file";
  const TrainResult at_once = run(options_over(layout + ",zero=3"));
  const TrainResult delayed = run(options_over(layout + ",zero=3" + host));
  for (const std::string& again : {host, files, files + "+parameters:file"}) {
    EXPECT_EQ(difference(run(options_over(layout + ",zero=3" + again)), delayed, 0), "") << again;
  }
  EXPECT_EQ(difference(run(options_over(layout + ",zero=2" + host)), run(options_over(layout + ",zero=2" + files)), 0),
            "");
  EXPECT_EQ(delayed.steps[0].loss, at_once.steps[0].loss);
  EXPECT_NE(delayed.steps[1].loss, at_once.steps[1].loss) << "its weights are the first ones";
  EXPECT_NE(delayed.validation_loss, at_once.validation_loss);
  EXPECT_LT(delayed.steps.back().loss, delayed.steps.front().loss);
}

// A checkpoint comes after the last step's update, in the run that writes it as in the run that reads it.
TEST(Offload, ADelayedUpdateIsMadeBeforeACheckpoint) {
  const std::string layout =
      "dp=2,microbatch=4,batch=8,zero=2,dtype=bf16,delayed_update=yes,offload=optimizer:host+gradients:host";
  const TemporaryFolder folder;
  TrainOptions all = options_over(layout, 6);
  all.checkpoint_folder = folder.path();
  all.checkpoint_every = 3;
  all.checkpoints_kept = 2;
  const TrainResult whole = run(all);
  EXPECT_EQ(difference(whole, resumed(options_over(layout, 6), options_over(layout, 6), 3), 0), "");
}

TEST(Offload, WhatCannotBeOffloadedIsOneLine) {
  const auto refuses = [](const std::string& layout, const std::string& what) {
    const std::string refusal = error_of_run(options_over(layout));
    EXPECT_NE(refusal.find(what), std::string::npos) << layout << ": " << refusal;
  };
  refuses("dp=2,zero=1,microbatch=4,batch=8,offload=gradients:host",
          "offload is gradients:host, and zero is 1; allowed: gradients on the device, or zero=2 or 3");
  refuses("dp=2,zero=2,microbatch=4,batch=8,offload=parameters:file",
          "offload is parameters:file, and zero is 2; allowed: parameters on the device, or zero=3");
  refuses("dp=2,zero=3,tp=2,sp=yes,microbatch=4,batch=8,offload=gradients:host", "tensor ranks share rows; allowed: ");
  refuses("dp=2,zero=3,pp=2,microbatch=4,batch=8,offload=gradients:host", "tied_embeddings is yes over 2 stages");
  refuses("dp=2,zero=3,microbatch=4,batch=8,dtype=bf16,delayed_update=yes,offload=host",
          "delayed_update is yes, and offload is host; allowed: no, or optimizer and gradients both in host or file");
  refuses("dp=2,zero=3,microbatch=4,batch=8,dtype=f32,delayed_update=yes,offload=optimizer:host+gradients:host",
          "delayed_update is yes, and dtype is f32");
}

// Written from files, read to the device, and the other way round.
TEST(Offload, CheckpointsGoFromOnePlaceToTheOther) {
  const std::string layout = "dp=2,microbatch=4,batch=8,zero=3,dtype=bf16";
  const TrainOptions here = options_over(layout, 6);
  const TrainOptions away = options_over(layout + ",offload=optimizer:file+gradients:file+parameters:file", 6);
  const TrainResult whole = run(here);
  EXPECT_EQ(difference(whole, resumed(here, away, 3), 0), "");
  EXPECT_EQ(difference(whole, resumed(away, here, 3), 0), "");
}

TEST(Offload, WhatDoesNotFitTheDeviceIsRefusedAndFitsWithIt) {
  TrainOptions options = options_over("dp=1,microbatch=1,batch=1,dtype=bf16");
  const auto made = make_train_step(options.model, options.layout);
  const std::int64_t needed = parallel::total_of(most_needed(made, options.model, options.layout));
  options.device_memory = needed - 1;
  EXPECT_NE(
      error_of_run(options).find(" needs " + std::to_string(needed) + " bytes on a rank, but --device-memory is " +
                                 std::to_string(needed - 1) + "; allowed: "),
      std::string::npos);
}

// Truncates the offload files, as a failing disk may do.
void cut_offload_files() {
  for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(open.path(), gone).string();
    if (target.find("/lockstep-offload-") == std::string::npos) continue;
    ASSERT_EQ(ftruncate(std::stoi(open.path().filename()), 0), 0);
  }
}

// Gradients are not among them: each step rewrites them.
TEST(Offload, AShortReadIsOneLineAndLeavesTheCheckpoint) {
  const std::string layout = "dp=2,microbatch=2,batch=8,zero=3,dtype=bf16";
  for (const std::string kind : {"optimizer", "parameters"}) {
    const TemporaryFolder folder;
    TrainOptions options = options_over(layout + ",offload=" + kind + ":file", 4);
    options.checkpoint_folder = folder.path();
    options.checkpoint_every = 2;
    TrainObserver observer;
    observer.step = [](const StepReport& report, const schedules::StepTimeline&) {
      if (report.step == 3) cut_offload_files();
    };
    const std::string message = error_of_run(options, observer);
    EXPECT_NE(message.find("offload folder '"), std::string::npos) << kind << ": " << message;
    EXPECT_NE(message.find("only 0 bytes"), std::string::npos) << kind << ": " << message;
    TrainOptions rest = options_over(layout, 4);
    rest.resume = folder.path();
    EXPECT_EQ(run(rest).steps.size(), 2u) << kind << ": the checkpoint is whole";
  }
}

TEST(Offload, AFolderThatIsNotThereIsOneLineAndLeavesTheCheckpoint) {
  const TemporaryFolder folder;
  TrainOptions first = options_over("dp=2,microbatch=4,batch=8,zero=1", 2);
  first.checkpoint_folder = folder.path();
  run(first);
  TrainOptions rest = options_over("dp=2,microbatch=4,batch=8,zero=1,offload=file", 4);
  rest.resume = folder.path();
  rest.checkpoint_folder = folder.path();
  rest.offload_folder = folder.path() + "/none";
  EXPECT_NE(error_of_run(rest).find("offload folder '" + rest.offload_folder + "': cannot create a file: No such file"),
            std::string::npos);
  rest.offload_folder.clear();
  EXPECT_EQ(run(rest).steps.size(), 2u) << "the checkpoint is whole";
}

}  // namespace
}  // namespace lockstep::trainer
