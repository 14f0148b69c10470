// Training on tensor-parallel ranks in grids of two, two and a half, and three dimensions.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/step/breakdown.h"
#include "testing/trainer/run.h"
#include "workload/rules.h"

namespace lockstep::trainer {
namespace {

const std::vector<std::string> kGrids{"2x2", "2.5d:2x2x2", "2x2x2"};

// A layout of the tests' batch, whose microbatches are as large as they may be.
TrainOptions options_for(const std::string& grid, const std::string& more = "", const workload::Model& model = tiny()) {
  TrainOptions options = options_of({});
  options.model = model;
  options.layout = workload::parse_layout_over(options.layout, "tp_grid=" + grid + more);
  options.layout.microbatch_size = kBatch / options.layout.dp / options.layout.microbatches;
  return options;
}

TrainResult of_one_rank(const workload::Model& model) {
  TrainOptions options = options_of({});
  options.model = model;
  return run(options);
}

// The words of the vocabulary do not divide: some ranks have padding.
workload::Model tiny_padded() {
  workload::Model model = tiny();
  model.vocabulary = 257;
  return model;
}

TEST(Grids, TrainAsOneRankDoes) {
  const TrainResult single = of_one_rank(tiny());
  for (const std::string& grid : kGrids) {
    EXPECT_EQ(difference(single, run(options_for(grid)), 1e-5), "") << grid;
  }
}

TEST(Grids, OfALlamaTrainAsOneRankDoes) {
  const TrainResult single = of_one_rank(tiny_llama());
  for (const std::string& grid : kGrids) {
    EXPECT_EQ(difference(single, run(options_for(grid, "", tiny_llama())), 1e-5), "") << grid;
    EXPECT_EQ(difference(single, run(options_for(grid, ",dp=2,microbatches=2,zero=2", tiny_llama())), 1e-5), "")
        << grid;
  }
}

TEST(Grids, PadAVocabulary) {
  const TrainResult single = of_one_rank(tiny_padded());
  for (const std::string& grid : kGrids) {
    EXPECT_EQ(difference(single, run(options_for(grid, "", tiny_padded())), 1e-5), "") << grid;
  }
}

TEST(Grids, ComposeWithWhatTheyAreNotRefusedWith) {
  const TrainResult single = of_one_rank(tiny());
  for (const std::string& grid : kGrids) {
    for (const char* more : {",microbatches=4", ",dp=2,microbatches=2", ",dp=2,zero=1", ",dp=2,zero=2,microbatches=2",
                             ",microbatches=2,recompute=full", ",pp=2,microbatches=4",
                             ",pp=2,dp=2,zero=1,microbatches=2,recompute=full,recompute_every=2",
                             ",pp=2,microbatches=4,schedule=interleaved,chunks=2", ",dp=2,zero=1,offload=host"}) {
      EXPECT_EQ(difference(single, run(options_for(grid, more)), 1e-5), "") << grid << more;
    }
  }
}

TEST(Grids, OfThreeByThree) {
  workload::Model model = tiny();
  model.hidden = 36;
  model.heads = model.kv_heads = 6;
  model.head_size = 6;
  model.ffn_hidden = 72;
  TrainOptions one = options_of({});
  one.model = model;
  one.layout.microbatch_size = 18;
  const TrainResult single = run(one);
  for (const char* grid : {"3x3", "2.5d:3x3x2"}) {
    TrainOptions options = options_for(grid, "", model);
    options.layout.microbatch_size = 18;
    EXPECT_EQ(difference(single, run(options), 1e-5), "") << grid;
  }
}

TEST(Grids, TrainIn16Bits) {
  const TrainResult single = of_one_rank(tiny());
  for (const std::string& grid : kGrids) {
    TrainOptions options = options_for(grid, ",dp=2,dtype=bf16,grad_dtype=bf16,microbatches=2");
    EXPECT_NEAR(run(options).steps.back().loss, single.steps.back().loss, 0.02) << grid;
  }
}

TEST(Grids, GoOnFromCheckpointsOfAnyLayout) {
  const TrainResult single = of_one_rank(tiny());
  for (const std::string& grid : kGrids) {
    const TrainOptions here = options_for(grid, ",microbatches=2");
    const TrainOptions one = options_of({});
    EXPECT_EQ(difference(run(here), resumed(here, here, 3), 0), "") << grid;
    EXPECT_EQ(difference(single, resumed(here, one, 3), 1e-5), "") << grid;
    EXPECT_EQ(difference(single, resumed(one, here, 3), 1e-5), "") << grid;
  }
}

// Each rank sends in its groups exactly the bytes that the step's collectives imply, which the simulator prices.
TEST(Grids, SendWhatTheStepCounts) {
  using schedules::GroupKind;
  for (const std::string& grid : kGrids) {
    const TrainOptions options = checked(options_for(grid, ",dp=2,microbatches=2"));
    run_trainers(options, [&](const TrainStep& made, RankTrainer& trainer) {
      trainer.train_step(1);
      const StepCollectives& collectives = trainer.model().collectives();
      const auto counted = schedules::count_sent(made.step)[static_cast<std::size_t>(trainer.model().rank())];
      double all = 0;
      for (const GroupKind kind : workload::kTensorGroups) {
        const double sent = collectives.sent_bytes(schedules::Lane::tensor, kind) +
                            collectives.sent_bytes(schedules::Lane::reduce, kind);
        EXPECT_DOUBLE_EQ(sent, counted.of(kind)) << grid << " " << name_of(kind);
        all += sent;
      }
      EXPECT_GT(all, 0);
    });
  }
}

TEST(Grids, HoldTheMemoryThatIsPredicted) {
  for (const std::string& grid : kGrids) {
    for (const char* more :
         {"", ",microbatches=2", ",dp=2,zero=1,microbatches=2", ",dp=2,zero=2,microbatches=2", ",dtype=bf16",
          ",dtype=bf16,grad_dtype=bf16,dp=2,zero=2,microbatches=2", ",recompute=full,recompute_every=2",
          ",pp=2,microbatches=2,recompute=full,early_stop=no", ",pp=2,microbatches=4"}) {
      EXPECT_EQ(memory_difference(options_for(grid, more)), "") << grid << more;
      EXPECT_EQ(memory_difference(options_for(grid, more, tiny_llama())), "") << grid << more << " llama";
    }
  }
}

TEST(Grids, WriteTheTextThatOneRankWrites) {
  TrainOptions one = options_of({}, 2);
  one.sample_tokens = 8;
  one.prompt = "the ";
  one.temperature = 0;
  const std::string text = run(one).sample;
  EXPECT_EQ(text.size(), 8U);
  for (const std::string& grid : kGrids) {
    TrainOptions options = options_for(grid);
    options.steps = one.steps;
    options.rate = one.rate;
    options.sample_tokens = one.sample_tokens;
    options.prompt = one.prompt;
    options.temperature = one.temperature;
    EXPECT_EQ(run(options).sample, text) << grid;
  }
}

TEST(Grids, RefuseWhatTheyDoNotTrainWith) {
  const auto refusal = [](const std::string& more) { return refusal_of(options_for("2x2", more)); };
  EXPECT_EQ(refusal(",dp=2,zero=3"), "mini_train does not have tp_grid=2x2 together with zero=3; allowed: zero=0 1 2");
  EXPECT_EQ(refusal(",recompute=selective"),
            "mini_train does not have tp_grid=2x2 together with recompute=selective; allowed: recompute=none full");
  EXPECT_EQ(refusal(",offload=activations:host"),
            "mini_train does not have tp_grid=2x2 together with activations that leave the device; allowed: "
            "activations on the device");
  EXPECT_EQ(
      refusal(",pp=2,microbatches=4,schedule=zb_h1"),
      "mini_train does not have tp_grid=2x2 with schedule=zb_h1, which splits backwards; allowed: a schedule such "
      "as 1f1b");
  EXPECT_EQ(refusal(",microbatches=16"), "layout: tp_grid is 2x2, and microbatch is 1; allowed: multiples of 2");
  TrainOptions cuda = options_for("2x2");
  cuda.device = {.cuda = true};
  EXPECT_EQ(refusal_of(cuda),
            "--device cuda with tp_grid=2x2, whose norms run on the CPU only; allowed: --device cpu, "
            "or tp_grid=none");
}

}  // namespace
}  // namespace lockstep::trainer
