// Activations that ranks keep in parts, or off the device: the training is the same to the bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_of_copies(const std::string& layout) {
  TrainOptions options = options_of({}, 3);
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
    EXPECT_EQ(
        difference(run(options_of_copies(layout + ",partition_activations=yes")), run(options_of_copies(layout)), 0),
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
    const TrainResult here = run(options_of_copies(layout));
    for (const char* where : {",offload=activations:host", ",offload=activations:file,offload_ahead=2"}) {
      EXPECT_EQ(difference(run(options_of_copies(layout + where)), here, 0), "") << layout << where;
    }
  }
}

TEST(OffloadedActivations, OfALlamaChangeNoBit) {
  TrainOptions options = options_of_copies("batch=16,microbatch=4");
  options.model = tiny_llama();
  const TrainResult here = run(options);
  options.layout = workload::parse_layout_over(options.layout, "offload=activations:file,offload_ahead=0");
  EXPECT_EQ(difference(run(options), here, 0), "");
}

// A budget that the activations alone are beyond, and that is enforced at each allocation.
TEST(OffloadedActivations, TrainWhatDoesNotFitTheDevice) {
  TrainOptions options = options_of_copies("batch=16,microbatch=16");
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
  TrainOptions options = options_of_copies("cp=2,batch=16,microbatch=8,offload=activations:host");
  const auto refusal = [&]() -> std::string {
    try {
      run(options);
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(),
            "mini_train does not have offload=activations:host of activations of context-parallel ranks that are not "
            "recomputed; allowed: recompute=full, or activations on the device");
  options.layout = workload::parse_layout_over(options.layout, "recompute=full");
  EXPECT_EQ(refusal(), "");
  options.layout = workload::parse_layout_over(options.layout, "offload=activations:file");
  options.offload_folder = "/nowhere";
  EXPECT_EQ(refusal().find("offload folder '/nowhere': cannot create a file"), 0u) << refusal();
}

}  // namespace
}  // namespace lockstep::trainer
