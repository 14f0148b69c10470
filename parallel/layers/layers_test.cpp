// Layers on t ranks against the same layer on one: terms of ranks add up to its output and its input's gradient, and
// shares of weight gradients are shares of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "workload/parameters.h"

namespace lockstep::parallel {
namespace {

using Values = std::vector<float>;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 10;
constexpr std::int64_t kRows = kBatch * kLength;
constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kInner = 4 * kHidden;

Values random_values(std::int64_t count, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Values values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// Products with which are about as large as what goes in: scores stay small, and the softmax well-conditioned.
Values weight_values(std::int64_t outputs, std::int64_t inputs, unsigned seed) {
  return random_values(outputs * inputs, seed, 1 / std::sqrt(static_cast<float>(inputs)));
}

// Differences of sums in another order, of the largest element; the longest sum has kInner terms.
void expect_near(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float largest = 0;
  float worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(found[i] - expected[i]));
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(worst, largest * core::sum_tolerance(core::DType::f32, kInner)) << what;
}

// The results of a block; on several ranks, the sum of all terms.
struct Outcome {
  Values y, dx;
};

class LayersTest : public testing::TestWithParam<std::int32_t> {
 protected:
  std::int32_t ranks() const { return GetParam(); }
  const Workspace& workspace() const { return workspace_; }

  Tensor tensor(const Values& values) {
    Tensor tensor = memory_.make(MemoryKind::activations, core::DType::f32, static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), tensor.as<float>());
    return tensor;
  }
  Tensor ids(const std::vector<std::int32_t>& values) {
    Tensor tensor = memory_.make(MemoryKind::buffers, core::DType::i32, static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>());
    return tensor;
  }
  Tensor zeros(std::int64_t elems) { return memory_.make_zeroed(MemoryKind::gradients, core::DType::f32, elems); }
  static Values values(const Tensor& tensor) { return {tensor.as<float>(), tensor.as<float>() + tensor.elems()}; }
  static Values share(const workload::Parameter& parameter, workload::TensorRank place, const Values& whole) {
    Values part(static_cast<std::size_t>(workload::elems_of_share(parameter, place)));
    workload::for_each_run(parameter, place, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      std::copy_n(whole.begin() + from, count, part.begin() + to);
    });
    return part;
  }
  static void add(Values& to, const Tensor& term) {
    to.resize(static_cast<std::size_t>(term.elems()));
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += term.as<float>()[i];
  }

  // A linear layer's share, and its gradients.
  struct Share {
    Tensor weight, bias, d_weight, d_bias;
    LinearWeights weights(bool with_bias = true) const { return {weight.in(), with_bias ? bias.in() : kernels::In{}}; }
    LinearGradients gradients() const { return {d_weight.inout(), d_bias.inout()}; }
  };
  struct Whole {
    workload::Parameter weight, bias;
    Values weight_values, bias_values;
  };
  static Whole column_parallel(std::int64_t outputs, std::int64_t inputs, unsigned seed,
                               std::vector<std::int64_t> blocks = {}) {
    return {{.name = "w", .shape = {outputs, inputs}, .split = workload::Split::rows, .blocks = blocks},
            {.name = "b", .shape = {outputs}, .split = workload::Split::rows, .blocks = blocks},
            weight_values(outputs, inputs, seed),
            random_values(outputs, seed + 1)};
  }
  static Whole row_parallel(std::int64_t outputs, std::int64_t inputs, unsigned seed) {
    return {{.name = "w", .shape = {outputs, inputs}, .split = workload::Split::columns},
            {.name = "b", .shape = {outputs}},
            weight_values(outputs, inputs, seed),
            random_values(outputs, seed + 1)};
  }
  Share share_of(const Whole& whole, workload::TensorRank place) {
    Share part{.weight = tensor(share(whole.weight, place, whole.weight_values)),
               .bias = tensor(share(whole.bias, place, whole.bias_values)),
               .d_weight = {},
               .d_bias = {}};
    part.d_weight = zeros(part.weight.elems());
    part.d_bias = zeros(part.bias.elems());
    return part;
  }
  static void expect_share(const Whole& whole, workload::TensorRank place, const Share& found, const Share& expected) {
    expect_near(values(found.d_weight), share(whole.weight, place, values(expected.d_weight)), "weight gradient");
    expect_near(values(found.d_bias), share(whole.bias, place, values(expected.d_bias)), "bias gradient");
  }

  // Checks a block of two layers with run(place, share of the first, share of the second, outcome to add to).
  template <class Run>
  void expect_terms_add_up(const Whole& first, const Whole& second, const Run& run) {
    Outcome alone;
    const Share whole_first = share_of(first, {});
    const Share whole_second = share_of(second, {});
    run(workload::TensorRank{}, whole_first, whole_second, alone);
    Outcome together;
    for (std::int32_t r = 0; r < ranks(); ++r) {
      const workload::TensorRank place{ranks(), r};
      const Share first_share = share_of(first, place);
      const Share second_share = share_of(second, place);
      run(place, first_share, second_share, together);
      expect_share(first, place, first_share, whole_first);
      expect_share(second, place, second_share, whole_second);
    }
    expect_near(together.y, alone.y, "y");
    expect_near(together.dx, alone.dx, "dx");
  }

 private:
  kernels::ThreadPool pool_{1};
  kernels::Context where_{pool_};
  std::unique_ptr<core::Device> device_ = core::make_cpu_device();
  Memory memory_{*device_};
  Workspace workspace_{memory_, where_};
};

TEST_P(LayersTest, TermsOfAnMlpAddUp) {
  for (const Activation activation : {Activation::gelu_in_products, Activation::gelu, Activation::swiglu}) {
    const std::int64_t up_rows = (activation == Activation::swiglu ? 2 : 1) * kInner;
    const Values x = random_values(kRows * kHidden, 1);
    const Values dy = random_values(kRows * kHidden, 2);
    const Whole up = activation == Activation::swiglu ? column_parallel(up_rows, kHidden, 3, {kInner, kInner})
                                                      : column_parallel(up_rows, kHidden, 3);
    const Whole down = row_parallel(kHidden, kInner, 5);
    const auto run = [&](workload::TensorRank place, const Share& up_share, const Share& down_share, Outcome& outcome) {
      const MlpLayer layer{kRows, kHidden, kInner / place.ranks, activation};
      const LinearWeights up_weights = up_share.weights();
      const LinearWeights down_weights = down_share.weights(place.index == 0);
      const Tensor x_here = tensor(x);
      const Tensor dy_here = tensor(dy);
      const Tensor y = tensor(x);
      MlpSaved saved;
      layer.up(workspace(), up_weights, x_here.in(), saved);
      if (!layer.in_products()) layer.activate(workspace(), saved);
      layer.of_down().forward(workspace(), down_weights, saved.act.in(), y.out());
      add(outcome.y, y);
      const Tensor dx = tensor(x);
      Tensor d_pre = layer.down_gradient(workspace(), down_weights.weight, saved, dy_here.in());
      if (!layer.in_products()) d_pre = layer.activation_gradient(workspace(), saved, d_pre.in());
      layer.of_up().input_gradient(workspace(), up_weights.weight, d_pre.in(), dx.out());
      add(outcome.dx, dx);
      layer.of_down().weight_gradient(workspace(), saved.act.in(), dy_here.in(), down_share.gradients());
      layer.of_up().weight_gradient(workspace(), x_here.in(), d_pre.in(), up_share.gradients());
    };
    expect_terms_add_up(up, down, run);
  }
}

TEST_P(LayersTest, TermsOfAttentionAddUpOverHeads) {
  for (const std::int64_t kv_heads : {kHeads, kHeads / 2}) {
    if (kv_heads % ranks() != 0) continue;
    const std::int64_t keys = kv_heads * (kHidden / kHeads);
    const Values x = random_values(kRows * kHidden, 1);
    const Values dy = random_values(kRows * kHidden, 2);
    const Whole qkv = column_parallel(kHidden + 2 * keys, kHidden, 3, {kHidden, keys, keys});
    const Whole projection = row_parallel(kHidden, kHidden, 5);
    const kernels::Rotary rotary{.rows = 0, .length = 0, .heads = 0, .head_columns = 0};
    const auto run = [&](workload::TensorRank place, const Share& qkv_share, const Share& projection_share,
                         Outcome& outcome) {
      const AttentionLayer layer{kBatch,          kLength, kHidden, kHeads / place.ranks, kv_heads / place.ranks,
                                 kHidden / kHeads};
      const LinearWeights qkv_weights = qkv_share.weights();
      const LinearWeights projection_weights = projection_share.weights(place.index == 0);
      const Tensor x_here = tensor(x);
      const Tensor dy_here = tensor(dy);
      const Tensor y = tensor(x);
      AttentionSaved saved;
      layer.qkv(workspace(), qkv_weights, x_here.in(), saved);
      const bool turns = kv_heads < kHeads;  // as Llama has both
      if (turns) layer.rotate(workspace(), rotary, saved.qkv);
      layer.core(workspace(), saved);
      layer.of_projection().forward(workspace(), projection_weights, saved.o.in(), y.out());
      add(outcome.y, y);
      const Tensor dx = tensor(x);
      const Tensor d_o = layer.projection_gradient(workspace(), projection_weights.weight, dy_here.in());
      const Tensor d_qkv = layer.core_gradient(workspace(), saved, d_o.in());
      kernels::Rotary back = rotary;
      back.backward = true;
      if (turns) layer.rotate(workspace(), back, d_qkv);
      layer.of_qkv().input_gradient(workspace(), qkv_weights.weight, d_qkv.in(), dx.out());
      add(outcome.dx, dx);
      layer.of_projection().weight_gradient(workspace(), saved.o.in(), dy_here.in(), projection_share.gradients());
      layer.of_qkv().weight_gradient(workspace(), x_here.in(), d_qkv.in(), qkv_share.gradients());
    };
    expect_terms_add_up(qkv, projection, run);
  }
}

// 61 words: the last rank's table ends in padding.
TEST_P(LayersTest, TermsOfAnEmbeddingAddUpWhateverThePadding) {
  constexpr std::int64_t kWords = 61;
  const workload::Parameter table{.name = "wte", .shape = {kWords, kHidden}, .split = workload::Split::rows};
  const Values words = random_values(kWords * kHidden, 1);
  const Values positions = random_values(kLength * kHidden, 2);
  const Values dy = random_values(kRows * kHidden, 3);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < kRows; ++i) tokens.push_back(static_cast<std::int32_t>(i * 37 % kWords));
  const Tensor tokens_here = ids(tokens);
  const Tensor positions_here = tensor(positions);
  const Tensor dy_here = tensor(dy);
  Values sum;
  for (std::int32_t r = 0; r < ranks(); ++r) {
    const workload::TensorRank place{ranks(), r};
    const Tensor share_here = tensor(share(table, place, words));
    const std::int64_t rows = share_here.elems() / kHidden;
    const EmbeddingLayer layer{kRows, kLength, kHidden, words_of(kWords, rows, r)};
    const Tensor y = tensor(dy);
    layer.forward(workspace(), tokens_here.in(), share_here.in(), r == 0 ? positions_here.in() : kernels::In{},
                  y.out());
    add(sum, y);
    const Tensor d_table = zeros(share_here.elems());
    const Tensor d_positions = zeros(kLength * kHidden);
    layer.backward(workspace(), tokens_here.in(), dy_here.in(), d_table.inout(), d_positions.inout());
    Values expected_table(static_cast<std::size_t>(kWords * kHidden));
    Values expected_positions(static_cast<std::size_t>(kLength * kHidden));
    for (std::int64_t i = 0; i < kRows * kHidden; ++i) {
      const std::int64_t row = i / kHidden;
      const auto to = static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * kHidden + i % kHidden);
      expected_table[to] += dy[static_cast<std::size_t>(i)];
      expected_positions[static_cast<std::size_t>(row % kLength * kHidden + i % kHidden)] +=
          dy[static_cast<std::size_t>(i)];
    }
    expect_near(values(d_table), share(table, place, expected_table), "table's gradient");
    expect_near(values(d_positions), expected_positions, "positions' gradient");
  }
  for (std::int64_t i = 0; i < kRows * kHidden; ++i) {
    const std::int64_t row = i / kHidden;
    const auto word = static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * kHidden + i % kHidden);
    const auto position = static_cast<std::size_t>(row % kLength * kHidden + i % kHidden);
    EXPECT_EQ(sum[static_cast<std::size_t>(i)], words[word] + positions[position]);
  }
}

// The loss of one rank, by what ranks exchange: three floats a row.
TEST_P(LayersTest, TheHeadGivesTheLossOfTheWholeVocabulary) {
  constexpr std::int64_t kWords = 61;
  constexpr float kScale = 0.25F;
  const workload::Parameter table{.name = "wte", .shape = {kWords, kHidden}, .split = workload::Split::rows};
  const Values words = random_values(kWords * kHidden, 1);
  const Tensor x = tensor(random_values(kRows * kHidden, 2));
  std::vector<std::int32_t> of_rows;
  for (std::int64_t i = 0; i < kRows; ++i) of_rows.push_back(static_cast<std::int32_t>(i * 41 % kWords));
  const Tensor targets = ids(of_rows);

  struct Rank {
    HeadLayer layer;
    Tensor weights, logits, losses, dx, d_weights;
  };
  const auto run = [&](std::int32_t count) {
    std::vector<Rank> all;
    Tensor stats = zeros(count * kRows * 3);
    for (std::int32_t r = 0; r < count; ++r) {
      Tensor weights = tensor(share(table, {count, r}, words));
      const std::int64_t rows = weights.elems() / kHidden;
      const HeadLayer layer{kRows, kHidden, words_of(kWords, rows, r), count};
      all.push_back({layer, std::move(weights), zeros(kRows * rows), zeros(kRows), zeros(kRows * kHidden),
                     zeros(rows * kHidden)});
      Rank& rank = all.back();
      layer.logits(workspace(), rank.weights.in(), x.in(), rank.logits.out());
      if (count > 1) {
        layer.stats(workspace(), targets.in(), rank.logits.in(),
                    stats.out(r * layer.stats_elems(), layer.stats_elems()));
      }
    }
    for (Rank& rank : all) {
      rank.layer.loss(workspace(), targets.in(), count > 1 ? stats.in() : kernels::In{}, kScale, rank.logits.inout(),
                      rank.losses.out());
      rank.layer.input_gradient(workspace(), rank.weights.in(), rank.logits.in(), rank.dx.out());
      rank.layer.weight_gradient(workspace(), x.in(), rank.logits.in(), rank.d_weights.inout());
    }
    return all;
  };
  const std::vector<Rank> alone = run(1);
  const std::vector<Rank> together = run(ranks());
  Values dx;
  for (std::int32_t r = 0; r < ranks(); ++r) {
    const Rank& rank = together[static_cast<std::size_t>(r)];
    expect_near(values(rank.losses), values(alone[0].losses), "losses");
    expect_near(values(rank.d_weights), share(table, {ranks(), r}, values(alone[0].d_weights)), "weight gradient");
    add(dx, rank.dx);
  }
  expect_near(dx, values(alone[0].dx), "dx");
}

TEST_P(LayersTest, SharesOfRowsOfANormAreItsRowsAndGradientsAddUp) {
  const Values x = random_values(kRows * kHidden, 1);
  const Values residual = random_values(kRows * kHidden, 2);
  const Values dy = random_values(kRows * kHidden, 3);
  const Tensor gamma = tensor(random_values(kHidden, 4));
  const Tensor beta = tensor(random_values(kHidden, 5));
  struct OfNorm {
    Values sum, y, dx, gradients;
  };
  const auto run = [&](std::int64_t count) {
    OfNorm all;
    const std::int64_t rows = kRows / count;
    const auto part = [&](const Values& of, std::int64_t r) {
      return tensor(Values(of.begin() + r * rows * kHidden, of.begin() + (r + 1) * rows * kHidden));
    };
    const auto append = [](Values& to, const Tensor& from) {
      const Values more = values(from);
      to.insert(to.end(), more.begin(), more.end());
    };
    for (std::int64_t r = 0; r < count; ++r) {
      const NormLayer norm{kernels::Norm::layer, rows, kHidden};
      const Tensor sum = part(x, r);
      const Tensor y = part(x, r);
      NormSaved saved;
      norm.forward_of_sum(workspace(), {gamma.in(), beta.in()}, part(x, r).in(), part(residual, r).in(), saved,
                          sum.out(), y.out());
      const Tensor dx = part(dy, r);
      const Tensor gradients = zeros(2 * kHidden);
      norm.backward_with_residual(workspace(), gamma.in(), sum.in(), saved, part(residual, r).in(), dx.inout(),
                                  {gradients.inout(0, kHidden), gradients.inout(kHidden, kHidden)});
      append(all.sum, sum);
      append(all.y, y);
      append(all.dx, dx);
      add(all.gradients, gradients);
    }
    return all;
  };
  const OfNorm alone = run(1);
  const OfNorm together = run(ranks());
  EXPECT_EQ(together.sum, alone.sum);
  EXPECT_EQ(together.y, alone.y);
  EXPECT_EQ(together.dx, alone.dx);
  expect_near(together.gradients, alone.gradients, "gradients of gamma and beta");
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayersTest, testing::Values(1, 2, 4));

TEST(Words, EveryWordIsOnOneRank) {
  for (std::int64_t vocabulary = 1; vocabulary <= 40; ++vocabulary) {
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      const std::int64_t rows = (vocabulary + ranks - 1) / ranks;
      std::int64_t next = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const Words words = words_of(vocabulary, rows, r);
        EXPECT_EQ(words.rows, rows);
        EXPECT_GE(words.valid, 0);
        if (words.valid > 0) {
          EXPECT_EQ(words.first, next);
        }
        next += words.valid;
      }
      EXPECT_EQ(next, vocabulary);
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
