#include "trainer/model/gpt_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/base/thread_pool.h"
#include "testing/trainer/model.h"
#include "workload/memory.h"

namespace lockstep::trainer {
namespace {

using tests::Model;
using tests::ModelOptions;

// GPT-2, and what Llama changes in it.
struct Architecture {
  const char* name;
  const char* fields;
};
constexpr Architecture kArchitectures[] = {
    {"gpt2", ",heads=4"},
    {"rms_no_biases_untied", ",heads=4,norm=rms,biases=no,tied_embeddings=no"},
    {"llama", ",norm=rms,biases=no,tied_embeddings=no,learned_positions=no,gated=yes,kv_heads=4,heads=8,ffn_hidden=48"},
    {"heads_wider_than_hidden",
     ",heads=4,learned_positions=no,gated=yes,kv_heads=4,head_size=12,rope_pairs=neighbours"},
};

GptShape small_shape(const Architecture& architecture) {
  return {
      .model = workload::parse_model(
          std::string("layers=3,hidden=32,vocabulary=61,sequence=12,positions=20,dropout=no") + architecture.fields),
      .layout = {.microbatch_size = 2, .early_stop = true, .compute = core::DType::f32}};
}

using Gradients = std::vector<std::vector<float>>;

Gradients gradients_of(Model& model) {
  Gradients all;
  for (const workload::Parameter& one : model.parameters()) all.push_back(model.gradient(one.name));
  return all;
}

// The largest difference of each parameter's gradient, by its largest element; with the parameter's name.
struct Difference {
  double worst = 0;
  std::string parameter;
};
Difference difference_of(const Model& model, const Gradients& a, const Gradients& b) {
  Difference found;
  const std::vector<workload::Parameter> parameters = model.parameters();
  for (std::size_t p = 0; p < a.size(); ++p) {
    double largest = 0;
    double difference = 0;
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[p][i])));
      difference = std::max(difference, std::abs(static_cast<double>(a[p][i]) - static_cast<double>(b[p][i])));
    }
    EXPECT_GT(largest, 0) << parameters[p].name;
    if (difference / largest > found.worst) found = {difference / largest, parameters[p].name};
  }
  return found;
}

std::string name_of(const ModelOptions& options) {
  const GptShape& shape = options.shape;
  constexpr const char* kRecompute[] = {"none", "selective", "full"};
  return "tp " + std::to_string(shape.tensor.ranks) + (shape.layout.sequence_parallel ? " sp" : "") + " recompute " +
         kRecompute[static_cast<int>(shape.layout.recompute)] + (options.split ? " split" : "") +
         (options.patient ? " patient" : "") + " stages " + std::to_string(options.stages);
}

// On one stage: tokens, targets and losses of each microbatch.
void expect_only_results_left(const Model& model, const ModelOptions& options) {
  const std::int64_t results = std::int64_t{12} * options.shape.rows() * options.microbatches;
  for (const parallel::BytesByKind& bytes : model.bytes_before_end()) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(parallel::MemoryKind::activations)], 0) << name_of(options);
    EXPECT_EQ(bytes[static_cast<std::size_t>(parallel::MemoryKind::buffers)], results) << name_of(options);
  }
}

constexpr workload::Recompute kRecomputes[] = {workload::Recompute::none, workload::Recompute::selective,
                                               workload::Recompute::full};

class GptStageTest : public testing::TestWithParam<Architecture> {
 protected:
  kernels::ThreadPool pool_{1};
  ModelOptions options_{.shape = small_shape(GetParam()), .microbatches = 2};
};
INSTANTIATE_TEST_SUITE_P(Of, GptStageTest, testing::ValuesIn(kArchitectures),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(GptStageTest, AtFirstAllWordsAreAboutEquallyLikely) {
  options_.lively = false;
  Model model(pool_, options_);
  EXPECT_NEAR(model.step(Mode::evaluate), std::log(61.0), 0.05);
}

void expect_cutting_changes_no_bit(kernels::ThreadPool& pool, ModelOptions options) {
  Model plain(pool, options);
  const double loss = plain.step();
  const Gradients expected = gradients_of(plain);
  for (workload::Recompute recompute : kRecomputes) {
    for (bool split : {false, true}) {
      options.shape.layout.recompute = recompute;
      options.split = split;
      Model model(pool, options);
      EXPECT_EQ(model.step(), loss) << name_of(options);
      EXPECT_EQ(difference_of(model, expected, gradients_of(model)).worst, 0) << name_of(options);
    }
  }
}

TEST_P(GptStageTest, RecomputationAndSplitBackwardGiveTheSameBits) {
  expect_cutting_changes_no_bit(pool_, options_);
}

// Sums over ranks are sums of partial sums. The longest that is cut is over the 128 inner columns of the MLP.
TEST_P(GptStageTest, TensorRanksAgreeWithOne) {
  Model one(pool_, options_);
  const double loss = one.step();
  const Gradients expected = gradients_of(one);
  const double allowed = core::sum_tolerance(core::DType::f32, 128);
  for (std::int32_t ranks : {2, 4}) {
    for (int variant = 0; variant < 24; ++variant) {
      options_.shape.tensor.ranks = ranks;
      options_.shape.layout.sequence_parallel = variant % 2 == 1;
      options_.split = variant / 2 % 2 == 1;
      options_.patient = variant / 4 % 2 == 1;
      options_.shape.layout.recompute = kRecomputes[variant / 8];
      Model model(pool_, options_);
      EXPECT_NEAR(model.step() / loss, 1, 1e-6) << name_of(options_);
      const Difference difference = difference_of(model, expected, gradients_of(model));
      EXPECT_LT(difference.worst, allowed) << name_of(options_) << ": " << difference.parameter;
    }
  }
}

TEST_P(GptStageTest, HowBackwardIsCutChangesNoBitOnTensorRanksEither) {
  options_.shape.tensor.ranks = 2;
  for (bool sequence_parallel : {false, true}) {
    options_.shape.layout.sequence_parallel = sequence_parallel;
    options_.split = options_.patient = false;
    options_.shape.layout.recompute = workload::Recompute::none;
    Model plain(pool_, options_);
    const double loss = plain.step();
    const Gradients expected = gradients_of(plain);
    options_.split = options_.patient = true;
    options_.shape.layout.recompute = workload::Recompute::full;
    Model model(pool_, options_);
    EXPECT_EQ(model.step(), loss);
    EXPECT_EQ(difference_of(model, expected, gradients_of(model)).worst, 0) << name_of(options_);
  }
}

// Words are the one thing that two stages share: their gradient is summed in another order.
TEST_P(GptStageTest, PipelineStagesGiveTheSameBits) {
  Model one(pool_, options_);
  const double loss = one.step();
  const Gradients expected = gradients_of(one);
  for (std::int32_t stages : {2, 3}) {
    for (bool split : {false, true}) {
      options_.stages = stages;
      options_.split = split;
      Model model(pool_, options_);
      EXPECT_EQ(model.step(), loss) << name_of(options_);
      const Gradients found = gradients_of(model);
      const std::vector<workload::Parameter> parameters = model.parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (parameters[p].name != "wte.weight") {
          EXPECT_EQ(found[p], expected[p]) << parameters[p].name;
        }
      }
      EXPECT_LT(difference_of(model, expected, found).worst, core::sum_tolerance(core::DType::f32, 32));
    }
  }
}

TEST_P(GptStageTest, PipelinesOfTensorRanksPassOnTheirShareOfTheRows) {
  Model one(pool_, options_);
  const double loss = one.step();
  const Gradients expected = gradients_of(one);
  options_.stages = 2;
  options_.shape.tensor.ranks = 2;
  options_.shape.layout.sequence_parallel = true;
  Model model(pool_, options_);
  EXPECT_NEAR(model.step() / loss, 1, 1e-6);
  EXPECT_LT(difference_of(model, expected, gradients_of(model)).worst, core::sum_tolerance(core::DType::f32, 128));
}

TEST_P(GptStageTest, EvaluationGivesTheLossAndKeepsNothing) {
  Model model(pool_, options_);
  const double loss = model.step();
  const Gradients zeros = [&] {
    EXPECT_EQ(model.step(Mode::evaluate), loss);
    return gradients_of(model);
  }();
  for (const std::vector<float>& gradient : zeros) {
    EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [](float g) { return g == 0; }));
  }
  expect_only_results_left(model, options_);
}

// Logits of each position, of which the mean loss can be made.
TEST_P(GptStageTest, GenerationGivesTheLogitsOfTheLoss) {
  options_.microbatches = 1;
  for (core::DType compute : {core::DType::f32, core::DType::bf16}) {
    options_.shape.layout.compute = compute;
    for (std::int32_t ranks : {1, 2, 4}) {
      options_.shape.tensor.ranks = ranks;
      Model model(pool_, options_);
      const double loss = model.step(Mode::evaluate);
      model.step(Mode::generate);
      const std::int64_t words = options_.shape.model.vocabulary;
      const tests::Text text = tests::random_text(options_.shape, 0);
      double sum = 0;
      for (std::int64_t row = 0; row < options_.shape.rows(); ++row) {
        std::vector<double> logits;
        for (const std::vector<float>& of_rank : model.logits()) {
          const std::int64_t columns = static_cast<std::int64_t>(of_rank.size()) / options_.shape.rows();
          const auto begin = of_rank.begin() + row * columns;
          logits.insert(logits.end(), begin, begin + columns);
        }
        double of_all = 0;
        for (std::int64_t w = 0; w < words; ++w) of_all += std::exp(logits[static_cast<std::size_t>(w)]);
        const auto target = static_cast<std::size_t>(text.targets[static_cast<std::size_t>(row)]);
        sum += std::log(of_all) - logits[target];
      }
      EXPECT_NEAR(sum / static_cast<double>(options_.shape.rows()), loss, 1e-5) << name_of(options_);
    }
  }
}

// Products are rounded to eight bits of significand a layer; losses are f32.
TEST_P(GptStageTest, NarrowDtypesComeNearF32) {
  Model exact(pool_, options_);
  const double loss = exact.step();
  const Gradients expected = gradients_of(exact);
  for (core::DType compute : {core::DType::bf16, core::DType::f16}) {
    options_.shape.layout.compute = compute;
    Model model(pool_, options_);
    const double unit = std::pow(2.0, -core::significand_bits(compute));
    EXPECT_NEAR(model.step() / loss, 1, unit);
    const Difference difference = difference_of(model, expected, gradients_of(model));
    EXPECT_LT(difference.worst, 32 * unit) << core::name_of(compute) << ": " << difference.parameter;
    EXPECT_GT(difference.worst, 0);
  }
}

// Narrow gradients are worked on in f32 until a part's are committed: none is left over, whichever piece comes last.
TEST_P(GptStageTest, EveryPartCommitsItsGradients) {
  options_.shape.layout.compute = core::DType::bf16;
  Model wide(pool_, options_);
  wide.step();
  const Gradients expected = gradients_of(wide);
  options_.gradient = core::DType::bf16;
  for (std::int32_t stages : {1, 3}) {
    for (bool split : {false, true}) {
      options_.stages = stages;
      options_.split = split;
      Model model(pool_, options_);
      model.step();
      for (std::int32_t s = 0; s < stages; ++s) {
        const auto now = model.rank(static_cast<std::size_t>(s), 0).memory->now();
        EXPECT_EQ(now[static_cast<std::size_t>(parallel::MemoryKind::buffers)], 0) << name_of(options_);
      }
      // Two microbatches, and the words of two stages: each rounded once or twice.
      const Difference difference = difference_of(model, expected, gradients_of(model));
      EXPECT_LT(difference.worst, 4 * std::pow(2.0, -9)) << name_of(options_) << ": " << difference.parameter;
      EXPECT_GT(difference.worst, 0);
    }
  }
}

TEST_P(GptStageTest, MemoryIsGivenBackAndRecomputationNeedsLess) {
  for (std::int32_t ranks : {1, 2}) {
    options_.shape.tensor.ranks = ranks;
    options_.shape.layout.sequence_parallel = ranks > 1;
    options_.microbatches = 3;
    for (bool split : {false, true}) {
      options_.split = split;
      std::vector<std::int64_t> peaks;
      for (workload::Recompute recompute :
           {workload::Recompute::full, workload::Recompute::selective, workload::Recompute::none}) {
        options_.shape.layout.recompute = recompute;
        Model model(pool_, options_);
        const parallel::Memory& memory = *model.rank(0, 0).memory;
        const parallel::BytesByKind before = memory.now();
        model.step();
        EXPECT_EQ(memory.now(), before) << name_of(options_);
        expect_only_results_left(model, options_);
        peaks.push_back(memory.peak_of_each()[static_cast<std::size_t>(parallel::MemoryKind::activations)]);
      }
      EXPECT_LT(peaks[1], peaks[2]) << name_of(options_);
      if (!split) {
        EXPECT_LT(peaks[0], peaks[1]) << name_of(options_);
      }
    }
  }
}

class Gpt2StageTest : public testing::Test {
 protected:
  kernels::ThreadPool pool_{1};
  ModelOptions options_{.shape = small_shape(kArchitectures[0]), .microbatches = 1};
};

// Bytes that a layer keeps for its backward: table 2 of Korthikanti et al. 2022 (arXiv:2205.05198), s b h (10 + 24 / t)
// bytes in 16 bit and 34 / t with sequence parallelism, without the masks of two dropouts (2 bytes), which we do not
// have, and without scores, which are never stored; and f32 numbers of rows.
TEST_F(Gpt2StageTest, ALayerKeepsWhatThePaperSays) {
  options_.shape.layout.compute = core::DType::bf16;
  const auto kept = [&](std::int64_t layers) {
    options_.shape.model.layers = layers;
    Model model(pool_, options_);
    model.step();
    return model.bytes_after_forward();
  };
  for (int variant = 0; variant < 18; ++variant) {
    options_.shape.tensor.ranks = options_.shape.layout.tp = 1 << variant % 3;
    options_.shape.layout.sequence_parallel = variant / 3 % 2 == 1;
    options_.shape.layout.recompute = kRecomputes[variant / 6];
    const GptShape& shape = options_.shape;
    const std::int64_t ranks = shape.tensor.ranks;
    const std::int64_t sbh = shape.rows() * shape.model.hidden;
    const std::int64_t own_sbh = shape.own_rows() * shape.model.hidden;
    const std::int64_t lse_bytes = 4 * shape.rows() * shape.model.heads / ranks;
    std::int64_t expected = 8 * own_sbh + 24 * sbh / ranks + 16 * shape.own_rows() + lse_bytes;
    if (shape.layout.recompute == workload::Recompute::selective) expected -= 2 * sbh / ranks + lse_bytes;
    if (shape.layout.recompute == workload::Recompute::full) expected = 2 * own_sbh;
    // The prediction from the list of operations is the same.
    workload::Layout layout = shape.layout;
    layout.tp = shape.tensor.ranks;
    EXPECT_EQ(activations_of(shape.model, layout, {.layers = 1}).kept, static_cast<double>(expected));
    EXPECT_EQ(kept(3) - kept(2), expected) << name_of(options_);
  }
}

// A layer keeps what is predicted from the list of operations.
TEST_P(GptStageTest, ALayerKeepsWhatIsPredicted) {
  options_.microbatches = 1;
  options_.shape.layout.compute = core::DType::bf16;
  const auto kept = [&](std::int64_t layers) {
    options_.shape.model.layers = layers;
    Model model(pool_, options_);
    model.step();
    return model.bytes_after_forward();
  };
  for (int variant = 0; variant < 12; ++variant) {
    options_.shape.tensor.ranks = 1 + variant % 2;
    options_.shape.layout.sequence_parallel = variant / 2 % 2 == 1;
    options_.shape.layout.recompute = kRecomputes[variant / 4];
    workload::Layout layout = options_.shape.layout;
    layout.tp = options_.shape.tensor.ranks;
    EXPECT_EQ(static_cast<double>(kept(3) - kept(2)), activations_of(options_.shape.model, layout, {.layers = 1}).kept)
        << name_of(options_);
  }
}

// Along a direction in each parameter the loss changes as its gradient says. Differences of a loss of about 4 in f32
// have an error of 4 * 2^-24 / (2 * step).
void expect_gradients_are_derivatives(kernels::ThreadPool& pool, const ModelOptions& options) {
  constexpr double kStep = 1.0 / 256;
  Model model(pool, options);
  model.step();
  for (const workload::Parameter& parameter : model.parameters()) {
    const std::vector<float> gradient = model.gradient(parameter.name);
    double length = 0;
    for (const float g : gradient) length += static_cast<double>(g) * static_cast<double>(g);
    length = std::sqrt(length);
    ASSERT_GT(length, 0) << parameter.name;
    double differences = 0;
    for (const double sign : {1.0, -1.0}) {
      const auto moved = [&](std::int64_t i, float value) {
        return value +
               static_cast<float>(sign * kStep * static_cast<double>(gradient[static_cast<std::size_t>(i)]) / length);
      };
      Model there(pool, options);
      there.change_weight(parameter.name, moved);
      differences += sign * there.step(Mode::evaluate);
    }
    EXPECT_NEAR(differences / (2 * kStep) / length, 1, 2e-3 + 1e-4 / length) << parameter.name;
  }
}

TEST_P(GptStageTest, GradientsAreTheDerivativesOfTheLoss) {
  expect_gradients_are_derivatives(pool_, options_);
}

// A token goes to all experts, so that no choice of theirs changes on the way.
TEST(MixtureStage, SharedExpertsGradientsAreDerivativesHoweverTheBackwardIsCut) {
  kernels::ThreadPool pool(1);
  for (const char* fields : {"", ",norm=rms,biases=no,gated=yes"}) {
    const std::string mixture =
        std::string(",heads=4,ffn_hidden=24,experts=2,experts_per_token=2,router=sigmoid,shared_hidden=40") + fields;
    const ModelOptions options{.shape = small_shape({"mixture", mixture.c_str()}), .microbatches = 2};
    expect_gradients_are_derivatives(pool, options);
    expect_cutting_changes_no_bit(pool, options);
  }
}

}  // namespace
}  // namespace lockstep::trainer
