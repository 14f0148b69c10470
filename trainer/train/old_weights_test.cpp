// Schedules with copies of a stage on two ranks, whose gradients are summed, and schedules that compute with old
// weights.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "testing/trainer/run.h"
#include "trainer/data/corpus.h"

namespace lockstep::trainer {
namespace {

void compare(const workload::Layout& layout, std::int64_t steps = kSteps) {
  static std::map<std::int64_t, TrainResult> of_one_rank;
  const auto [one, is_new] = of_one_rank.try_emplace(steps);
  if (is_new) one->second = run(options_of({}, steps));
  EXPECT_EQ(difference(one->second, run(options_of(layout, steps)), 1e-5), "") << text_of(layout);
}

std::vector<workload::Layout> two_pipes() {
  return {{.pp = 2, .schedule = "chimera", .microbatches = 2},
          {.pp = 2, .schedule = "chimera", .microbatches = 8},
          {.pp = 4, .schedule = "chimera", .microbatches = 4},
          {.pp = 2, .schedule = "chimera_doubled", .microbatches = 4},
          {.pp = 4, .schedule = "chimera_doubled", .microbatches = 16},
          {.pp = 2, .schedule = "dualpipe", .microbatches = 4},
          {.pp = 4, .schedule = "dualpipe", .microbatches = 8}};
}

TEST(TwoPipes, GiveTheLossesOfOneRank) {
  for (const workload::Layout& layout : two_pipes()) compare(layout, 20);
}

// pairs_test.cpp has every pair of options.
TEST(TwoPipes, WithDataTensorParallelRanksAndShards) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    workload::Layout layout = two_pipes()[zero % 2 == 0 ? 3 : 5];
    layout.zero = zero;
    layout.bucket_cap_bytes = 20'000;
    compare(layout);  // sharded over the two ranks of a stage
    layout.dp = 2;
    layout.recompute = static_cast<workload::Recompute>(zero % 3);
    compare(layout);
    layout.shard_ranks = zero > 0 ? 2 : 0;  // the copies are replicas
    layout.tp = 2;
    layout.sequence_parallel = true;
    compare(layout);
  }
  compare({.pp = 4, .zero = 3, .schedule = "dualpipe", .microbatches = 8, .prefetch = false});
  compare({.pp = 4, .zero = 2, .schedule = "chimera", .microbatches = 4, .overlap_gradients = false});
}

// By step, place of the stage in its pipe, parameter: the rank's part.
using Weights = std::map<std::tuple<std::int64_t, std::int32_t, std::size_t>, std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const kernels::In& weight) {
  const auto* const begin = static_cast<const std::byte*>(weight.data);
  return {begin, begin + kernels::size_bytes(weight.dtype, weight.elems)};
}

std::vector<Weights> weights_of_ranks(const TrainOptions& options) {
  std::vector<Weights> of_rank(static_cast<std::size_t>(options.layout.ranks()));
  run_trainers(options, [&](const TrainStep& made, RankTrainer& trainer) {
    Weights& weights = of_rank[static_cast<std::size_t>(trainer.model().rank())];
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      trainer.train_step(step);
      for (const RankStage& stage : trainer.model().stages()) {
        const std::int32_t place = stage.stage % made.step.stages_per_pipe;
        for (std::size_t p = 0; p < stage.plan->parameters.size(); ++p) {
          weights[{step, place, p}] = bytes_of(stage.store->weight(p));
        }
      }
    }
  });
  return of_rank;
}

void expect_same_copies(const TrainOptions& options) {
  const std::vector<Weights> of_rank = weights_of_ranks(options);
  const workload::Layout& layout = options.layout;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const workload::Coordinates first = data_rank_at(layout, coordinates_of(layout, rank), 0);
    const Weights& expected = of_rank[static_cast<std::size_t>(rank_at(layout, first))];
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(of_rank[static_cast<std::size_t>(rank)] == expected) << text_of(layout) << ", rank " << rank;
  }
}

TEST(TwoPipes, CopiesOfAStageStayTheSameBits) {
  for (workload::Layout layout : two_pipes()) {
    for (const std::int32_t zero : {0, 1}) {
      layout.zero = zero;
      expect_same_copies(options_of(layout));
    }
  }
  TrainOptions options = options_of({.dp = 2, .pp = 2, .zero = 2, .schedule = "dualpipe", .microbatches = 4});
  options.layout.compute = core::DType::bf16;
  expect_same_copies(options);
  options = options_of({.pp = 4, .schedule = "chimera", .microbatches = 4});
  options.layout.compression = workload::CompressionWay::int8;
  expect_same_copies(options);
}

TEST(TwoPipes, EndInCheckpointsOfAnyLayout) {
  const workload::Layout layouts[] = {{.microbatches = 2},
                                      {.pp = 2, .schedule = "chimera", .microbatches = 4},
                                      {.dp = 2, .pp = 2, .zero = 3, .schedule = "dualpipe", .microbatches = 4}};
  const TrainResult single = run(workload::Layout{});
  for (const workload::Layout& before : layouts) {
    for (const workload::Layout& after : layouts) {
      EXPECT_EQ(difference(single, resumed(options_of(before), options_of(after), 3), 1e-5), "")
          << text_of(before) << ", then " << text_of(after);
    }
  }
}

// Both ends make logits of the text: each has microbatches with it.
TEST(TwoPipes, WriteTheSameText) {
  const auto written = [](const workload::Layout& layout) {
    TrainOptions options = options_of(layout);
    options.sample_tokens = 8;
    options.temperature = 0;
    return run(options).sample;
  };
  const std::string expected = written({});
  EXPECT_EQ(expected.size(), 8u);
  EXPECT_EQ(written({.pp = 2, .schedule = "chimera", .microbatches = 2}), expected);
  EXPECT_EQ(written({.tp = 2, .pp = 2, .schedule = "dualpipe", .microbatches = 4}), expected);
}

TEST(TwoPipes, TakeTheMemoryThatWasPredicted) {
  for (const workload::Layout& layout : two_pipes())
    EXPECT_EQ(memory_difference(options_of(layout)), "") << text_of(layout);
}

// Training on old weights is what a plain program computes that keeps all versions of all weights: one rank has the
// whole model, takes one microbatch at a time, and is given the version of each stage's weights.

constexpr std::int64_t kFewSteps = 4;

using Values = std::map<std::string, std::vector<float>>;  // values of parameters, by name

workload::Model untied() {
  return workload::parse_model("layers=4,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no,tied_embeddings=no");
}

TrainOptions options_with(const std::string& layout, const workload::Model& model = untied()) {
  TrainOptions options = options_over(layout, kFewSteps);
  const workload::Layout& is = options.layout;
  options.layout.microbatch_size = kBatch / (is.dp * is.microbatches);
  options.model = model;
  options.most_norm = 0;
  return options;
}

// ---- the whole model on one rank

class WholeModel {
 public:
  WholeModel(const TrainOptions& options, const TrainStep& made, RankTrainer& trainer, const Corpus& corpus)
      : options_(options),
        made_(made),
        model_(trainer.model()),
        store_(*trainer.model().stages()[0].store),
        corpus_(corpus),
        worker_(made.step, trainer.model()) {}

  Values weights() {
    Values values;
    for (const auto& run : store_.runs(parallel::ParameterStore::State::master)) {
      auto& all = values[store_.parameters()[run.parameter].name];
      all.resize(static_cast<std::size_t>(run.whole_begin + run.count));
      std::copy_n(run.data, run.count, all.begin() + run.whole_begin);
    }
    return values;
  }
  void set_weights(const Values& values) {
    for (const auto& run : store_.runs(parallel::ParameterStore::State::master)) {
      const auto& all = values.at(store_.parameters()[run.parameter].name);
      std::copy_n(all.begin() + run.whole_begin, run.count, run.data);
    }
    store_.store_back(parallel::ParameterStore::State::master);
    store_.masters_changed();
  }

  struct Gradients {
    double loss_sum = 0;  // over tokens
    Values values;        // values of that sum, times `scale`
  };
  // Tokens of microbatch k of a step, as many sequences as this model's layout has.
  Gradients gradients(std::int64_t step, std::int64_t microbatch, double scale) {
    const auto tokens = static_cast<std::size_t>(options_.layout.microbatch_size * options_.model.sequence);
    std::vector<std::int32_t> ids(tokens);
    std::vector<std::int32_t> targets(tokens);
    draw_samples(corpus_.training(), options_.seed, step, microbatch * options_.layout.microbatch_size,
                 options_.model.sequence, ids, targets);
    const MicrobatchTokens given{ids, targets};
    UpdateRules rules;
    rules.rehearses = true;
    worker_.give({&given, 1}, rules);
    worker_.begin_step(Mode::train, static_cast<float>(scale));
    schedules::run_rank(made_.step, 0, worker_, model_.mesh().abort);
    Gradients found{.loss_sum = worker_.loss_sum(), .values = {}};
    for (std::size_t p = 0; p < store_.parameters().size(); ++p) {
      const kernels::InOut own = store_.own_gradient_of(p);
      found.values[store_.parameters()[p].name].assign(own.as<float>(), own.as<float>() + own.elems);
    }
    return found;
  }
  bool decays(const std::string& name) const {
    for (const workload::Parameter& parameter : store_.parameters()) {
      if (parameter.name == name) return parameter.decays;
    }
    return false;
  }

 private:
  const TrainOptions& options_;
  const TrainStep& made_;
  RankModel& model_;
  parallel::ParameterStore& store_;
  const Corpus& corpus_;
  TrainWorker worker_;
};

// AdamW of one parameter, which has its newest value.
struct Adam {
  std::vector<double> first;
  std::vector<double> second;
  std::int64_t updates = 0;

  void update(std::vector<float>& weights, const std::vector<float>& gradient, const kernels::OptimizerNumbers& adamw,
              double rate, bool decays) {
    first.resize(weights.size());
    second.resize(weights.size());
    ++updates;
    const double beta1 = adamw.beta1;
    const double beta2 = adamw.beta2;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = gradient[i];
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      const double m = first[i] / (1 - std::pow(beta1, static_cast<double>(updates)));
      const double v = second[i] / (1 - std::pow(beta2, static_cast<double>(updates)));
      const double w = weights[i];
      weights[i] = static_cast<float>(w - rate * (m / (std::sqrt(v) + adamw.epsilon) + (decays ? adamw.decay * w : 0)));
    }
  }
};

// The losses of steps, with weights this many updates old: by the parameter's name, and the microbatch in its step. An
// update takes `a_update` microbatches.
class Reference {
 public:
  using Age = std::function<std::int64_t(const std::string& parameter, std::int64_t microbatch, std::int64_t updates)>;
  Reference(std::int64_t microbatches, std::int64_t a_update, Age age)
      : microbatches_(microbatches), a_update_(a_update), age_(std::move(age)) {}

  std::vector<double> losses(const TrainOptions& like) {
    TrainOptions options = options_of({}, kFewSteps);
    options.model = like.model;
    options.layout.microbatch_size = kBatch / microbatches_;
    const Corpus corpus = corpus_of(options);
    std::vector<double> found;
    run_trainers(options, corpus, [&](const TrainStep& made, RankTrainer& trainer) {
      WholeModel model(options, made, trainer, corpus);
      for (std::int64_t step = 1; step <= kFewSteps; ++step) found.push_back(loss(options, model, step));
    });
    return found;
  }

 private:
  double loss(const TrainOptions& options, WholeModel& model, std::int64_t step) {
    if (versions_.empty()) versions_.push_back(model.weights());
    const double tokens_per_microbatch = static_cast<double>(options.tokens_per_step());
    double sum = 0;
    Values gradients;
    for (std::int64_t k = 0; k < microbatches_; ++k) {
      const auto updates = static_cast<std::int64_t>(versions_.size()) - 1;
      Values seen;
      for (const auto& [name, newest] : versions_.back()) {
        seen[name] = versions_[static_cast<std::size_t>(updates - age_(name, k, updates))].at(name);
      }
      model.set_weights(seen);
      const auto more = model.gradients(step, k, 1 / (tokens_per_microbatch * static_cast<double>(a_update_)));
      sum += more.loss_sum;
      for (const auto& [name, values] : more.values) {
        auto& to = gradients[name];
        to.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) to[i] += values[i];
      }
      if ((k + 1) % a_update_ != 0) continue;
      Values next = versions_.back();
      const double rate = static_cast<float>(learning_rate(options.rate, step));
      for (auto& [name, values] : next) {
        states_[name].update(values, gradients.at(name), options.optimizer, rate, model.decays(name));
      }
      versions_.push_back(std::move(next));
      gradients.clear();
    }
    return sum / tokens_per_microbatch / static_cast<double>(microbatches_);
  }

  const std::int64_t microbatches_;
  const std::int64_t a_update_;
  const Age age_;
  std::vector<Values> versions_;  // by number of updates
  std::map<std::string, Adam> states_;
};

// The stage of each parameter.
std::map<std::string, std::int32_t> stages_of_parameters(const TrainOptions& options) {
  std::map<std::string, std::int32_t> stages;
  const TrainStep made = make_train_step(options.model, options.layout);
  for (std::size_t s = 0; s < made.stages.size(); ++s) {
    for (const workload::Parameter& parameter : made.stages[s].parameters)
      stages[parameter.name] = static_cast<std::int32_t>(s);
  }
  return stages;
}

// Microbatch k of a step begins on stage s of p when k - (p-1-s) of the step's updates have been made there.
std::vector<double> pipedream_losses(const TrainOptions& options) {
  const auto stages = stages_of_parameters(options);
  const std::int64_t p = options.layout.pp;
  const auto age = [&](const std::string& name, std::int64_t k, std::int64_t) {
    return std::min(k, p - 1 - stages.at(name));
  };
  return Reference(options.layout.microbatches, 1, age).losses(options);
}

std::vector<double> delayed_losses(const TrainOptions& options, std::int64_t delay) {
  const std::int64_t m = options.layout.microbatches;
  const auto age = [delay](const std::string&, std::int64_t, std::int64_t updates) { return std::min(updates, delay); };
  return Reference(m, m, age).losses(options);
}

void expect_losses(const TrainResult& trained, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(trained.steps.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(trained.steps[i].loss, expected[i], 1e-5 * expected[i]) << what << ", step " << i + 1;
  }
}

double largest_difference(const TrainResult& trained, const std::vector<double>& other) {
  double most = 0;
  for (std::size_t i = 0; i < other.size(); ++i) most = std::max(most, std::abs(trained.steps[i].loss - other[i]));
  return most;
}

TEST(OldWeights, PipeDreamTrainsAsTheSerialProgramDoes) {
  for (const std::string layout : {"pp=1,microbatches=4", "pp=2,microbatches=4", "pp=4,microbatches=8",
                                   "pp=4,microbatches=2", "pp=2,dp=2,microbatches=4", "pp=2,tp=2,microbatches=4",
                                   "pp=2,dp=2,microbatches=4,overlap_grads=no,bucket_mb=0.02",
                                   "pp=4,microbatches=8,recompute=full", "pp=2,microbatches=4,overlap_p2p=no"}) {
    const TrainOptions options = options_with(layout + ",schedule=pipedream");
    expect_losses(run(options), pipedream_losses(options), layout);
  }
}

TEST(OldWeights, TwoVersionsTrainAsTheSerialProgramDoes) {
  for (const std::string layout :
       {"pp=2,microbatches=4", "pp=4,microbatches=4", "pp=2,dp=2,microbatches=4", "pp=2,tp=2,sp=yes,microbatches=2"}) {
    for (const workload::Model& model : {untied(), tiny()}) {
      const TrainOptions options = options_with(layout + ",schedule=pipedream_2bw", model);
      expect_losses(run(options), delayed_losses(options, 1), layout);
    }
  }
}

// The tolerance distinguishes the ways: one version, weights without a delay, and two versions.
TEST(OldWeights, AreSeenInTheLosses) {
  const TrainOptions stashed = options_with("pp=4,microbatches=8,schedule=pipedream");
  const TrainOptions delayed = options_with("pp=4,microbatches=8,schedule=pipedream_2bw");
  const TrainOptions plain = options_with("pp=4,microbatches=8,schedule=1f1b");
  TrainOptions fresh = stashed;
  fresh.layout.pp = 1;
  EXPECT_GT(largest_difference(run(stashed), pipedream_losses(fresh)), 1e-3);
  EXPECT_GT(largest_difference(run(delayed), delayed_losses(delayed, 0)), 1e-3);
  expect_losses(run(plain), delayed_losses(plain, 0), "1f1b");
}

TEST(OldWeights, RepeatToTheBit) {
  for (const std::string layout :
       {"pp=4,microbatches=8,schedule=pipedream", "pp=4,microbatches=8,schedule=pipedream_2bw",
        "pp=2,dp=2,microbatches=4,schedule=pipedream"}) {
    const TrainResult single = run(options_with(layout));
    const TrainResult other = run(options_with(layout));
    EXPECT_EQ(difference(single, other, 0), "") << layout;
  }
}

// At the end of a step no microbatch is under way, and a checkpoint has all that there is.
TEST(OldWeights, GoOnFromACheckpointToTheBit) {
  const TrainOptions options = options_with("pp=4,microbatches=8,schedule=pipedream");
  EXPECT_EQ(difference(run(options), resumed(options, options, kFewSteps / 2), 0), "");
}

TEST(OldWeights, AreCountedToTheByte) {
  for (const std::string layout :
       {"pp=4,microbatches=8,schedule=pipedream", "pp=2,microbatches=4,schedule=pipedream,dtype=bf16",
        "pp=2,dp=2,microbatches=4,schedule=pipedream,bucket_mb=0.02", "pp=4,microbatches=2,schedule=pipedream",
        "pp=2,microbatches=4,schedule=pipedream,dtype=bf16,grad_dtype=bf16", "pp=1,microbatches=2,schedule=pipedream",
        "pp=4,microbatches=4,schedule=pipedream_2bw", "pp=2,dp=2,microbatches=4,schedule=pipedream_2bw,dtype=bf16",
        "pp=2,tp=2,microbatches=4,schedule=pipedream,recompute=full"}) {
    EXPECT_EQ(memory_difference(options_with(layout)), "") << layout;
  }
}

TEST(OldWeights, AreRefusedWithWhatWouldWaitForAllGradients) {
  EXPECT_EQ(refusal_of(options_with("pp=2,microbatches=4,schedule=pipedream")), "");
  TrainOptions clipped = options_with("pp=2,microbatches=4,schedule=pipedream");
  clipped.most_norm = 1;
  EXPECT_NE(refusal_of(clipped).find("--clip 1; allowed: --clip 0"), std::string::npos);
  clipped.layout.schedule = "pipedream_2bw";
  EXPECT_EQ(refusal_of(clipped), "");
  clipped.checkpoint_folder = "folder";
  EXPECT_NE(refusal_of(clipped).find("--checkpoint or --resume"), std::string::npos);
  const auto refused = [&](const std::string& layout, const std::string& text) {
    const workload::Model model = layout.find("tied") == 0 ? tiny() : untied();
    const std::string with = layout.substr(layout.find(':') + 1);
    const std::string refusal = refusal_of(options_with(with, model));
    EXPECT_NE(refusal.find(text), std::string::npos) << with << ": " << refusal;
  };
  refused("tied:pp=2,microbatches=4,schedule=pipedream", "allowed: tied_embeddings=no");
  refused(":pp=2,dp=2,zero=1,microbatches=4,schedule=pipedream", "allowed: zero=0");
  refused(":pp=2,dp=2,zero=3,microbatches=4,schedule=pipedream_2bw", "allowed: zero=0");
  refused(":pp=2,microbatches=4,schedule=pipedream,offload=host", "allowed: offload=none");
  refused(":pp=2,microbatches=4,schedule=pipedream,fp8=tensor", "allowed: fp8=none");
  refused(":pp=2,tp=2,sp=yes,microbatches=4,schedule=pipedream", "allowed: sp=no");
  refused(":pp=2,microbatches=4,schedule=pipedream,dtype=f16", "allowed: dtype=f32 bf16");
}

}  // namespace
}  // namespace lockstep::trainer
