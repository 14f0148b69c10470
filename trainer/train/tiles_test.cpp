// MLPs that run tile by tile: the same training, but for the order of sums, with a tile's weights gathered at a time.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_in_tiles(const std::string& layout) {
  TrainOptions options = options_of({}, 3);
  options.layout = workload::parse_layout_over(options.layout, layout);
  return options;
}

TEST(TiledMlp, TrainsAsTheWholeButForTheOrderOfSums) {
  for (const std::string layout :
       {"batch=16,microbatch=4", "batch=16,microbatch=4,recompute=full", "dp=2,batch=16,microbatch=4,zero=3",
        "tp=2,batch=16,microbatch=8", "pp=2,batch=16,microbatch=2,schedule=zb_h1"}) {
    for (const bool llama : {false, true}) {
      TrainOptions options = options_in_tiles(layout);
      if (llama) options.model = tiny_llama();
      const TrainResult whole = run(options);
      options.layout.mlp_tiles = 4;
      EXPECT_EQ(difference(run(options), whole, 1e-5), "") << layout;
    }
  }
}

// Sums of the first product's input gradient and of the second's output alone are in another order.
TEST(TiledMlp, OfOneTileIsTheWhole) {
  TrainOptions options = options_in_tiles("batch=16,microbatch=4");
  const TrainResult whole = run(options);
  options.layout = workload::parse_layout_over(options.layout, "mlp_tiles=1");
  EXPECT_EQ(difference(run(options), whole, 0), "");
}

// Beside its shard a rank has one unit at a time: a tile of a wide MLP.
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
  TrainOptions options = options_in_tiles("batch=16,microbatch=4,mlp_tiles=2");
  options.export_file = "weights.safetensors";
  try {
    run(options);
    FAIL() << "exported";
  } catch (const core::Error& error) {
    EXPECT_STREQ(error.what(),
                 "mlp_tiles is 2 together with --init-from or --export, whose files have whole matrices; allowed: "
                 "mlp_tiles=1");
  }
}

}  // namespace
}  // namespace lockstep::trainer
