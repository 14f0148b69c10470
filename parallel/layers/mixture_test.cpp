// A mixture of experts against PyTorch's in f64 (mixture_torch.py), on one rank and on several, whose exchanges are
// done by hand.
#include "parallel/layers/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/thread_pool.h"
#include "testing/parallel/mixture_torch.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kTokens = 7;
constexpr std::int64_t kHidden = 4;
constexpr std::int64_t kInner = 6;
constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kTopK = 2;
constexpr float kBalance = 0.3F;
constexpr float kZ = 0.2F;

// As mixture_torch.py has it.
double value(int stream, std::int64_t index) {
  return std::sin(1.0 + 0.7 * stream + 1.3 * static_cast<double>(index) * (1 + 0.01 * stream));
}

// One rank with its tokens and experts.
class RankOfMixture {
 public:
  RankOfMixture(const MixtureLayer& layer, std::int64_t first_token) : layer_(layer), first_token_(first_token) {
    x_ = values(0, layer.router.tokens * kHidden, first_token * kHidden);
    router_ = values(1, kExperts * kHidden);
    d_router_ = zeros(kExperts * kHidden);
    for (std::int64_t e = layer.index * layer.experts_here(); e < (layer.index + 1) * layer.experts_here(); ++e) {
      const int stream = static_cast<int>(e);
      add(up_, values(10 + stream, kInner * kHidden), values(20 + stream, kInner));
      add(down_, values(30 + stream, kHidden * kInner), values(40 + stream, kHidden));
    }
  }

  const MixtureLayer& layer() const { return layer_; }
  MixtureSaved& saved() { return saved_; }
  const Workspace& workspace() const { return workspace_; }
  Tensor& all_counts() { return all_counts_; }

  void route() {
    layer_.route(workspace_, router_.in(), {}, x_.in(), saved_);
    layer_.permute(workspace_, x_.in(), saved_);
  }
  Exchange dispatch() { return layer_.dispatch(workspace_, saved_, saved_.sent, saved_.here); }
  void experts() {
    layer_.up(workspace_, weights(up_), saved_);
    layer_.down(workspace_, weights(down_), saved_);
  }
  Exchange combine() { return layer_.combine(workspace_, saved_, saved_.out, saved_.back); }
  void finish_forward() {
    y = make(layer_.router.tokens * kHidden);
    layer_.unpermute(workspace_, saved_, y.out());
  }

  void begin_backward() {
    auto gradients = layer_.unpermute_gradient(workspace_, saved_,
                                               values(2, layer_.router.tokens * kHidden, first_token_ * kHidden).in());
    d_gates_ = std::move(gradients.gates);
    (layer_.ranks == 1 ? d_out_ : d_back_) = std::move(gradients.rows);
  }
  Exchange combine_back() { return layer_.dispatch(workspace_, saved_, d_back_, d_out_); }
  void experts_back() {
    const Tensor d_pre = layer_.down_gradient(workspace_, weights(down_), saved_, d_out_.in());
    layer_.weight_gradient(workspace_, saved_, saved_.mlp.act, d_out_, gradients(down_));
    (layer_.ranks == 1 ? d_sent_ : d_here_) = layer_.up_gradient(workspace_, weights(up_), saved_, d_pre.in());
    layer_.weight_gradient(workspace_, saved_, saved_.here, d_pre, gradients(up_));
  }
  Exchange dispatch_back() { return layer_.combine(workspace_, saved_, d_here_, d_sent_); }
  void finish_backward(bool with_losses) {
    dx = make(layer_.router.tokens * kHidden);
    layer_.permute_gradient(workspace_, saved_, d_sent_.in(), dx.out());
    MixtureLosses losses;
    if (with_losses) {
      losses.balance_scale = kBalance * kExperts / static_cast<float>(kTokens * kTopK) / static_cast<float>(kTokens);
      losses.z_scale = 2 * kZ / static_cast<float>(kTokens);
    }
    const Tensor d_logits = layer_.router_gradient(workspace_, router_.in(), saved_, d_gates_.in(), losses, dx.inout());
    layer_.router_weight_gradient(workspace_, x_.in(), d_logits.in(), d_router_.inout());
  }

  static std::vector<float> host(const Tensor& tensor) {
    return {tensor.as<float>(), tensor.as<float>() + tensor.elems()};
  }
  std::vector<float> d_router() const { return host(d_router_); }
  // Gradients of this rank's experts in order.
  std::vector<float> gradient(bool of_up, bool of_weight) const {
    std::vector<float> all;
    for (const Expert& expert : of_up ? up_ : down_) {
      const std::vector<float> gradient = host(of_weight ? expert.d_weight : expert.d_bias);
      all.insert(all.end(), gradient.begin(), gradient.end());
    }
    return all;
  }

 private:
  struct Expert {
    Tensor weight, bias, d_weight, d_bias;
  };
  Tensor make(std::int64_t elems) { return memory_.make(MemoryKind::activations, core::DType::f32, elems); }
  Tensor zeros(std::int64_t elems) { return memory_.make_zeroed(MemoryKind::gradients, core::DType::f32, elems); }
  Tensor values(int stream, std::int64_t count, std::int64_t first = 0) {
    Tensor tensor = make(count);
    for (std::int64_t i = 0; i < count; ++i) tensor.as<float>()[i] = static_cast<float>(value(stream, first + i));
    return tensor;
  }
  void add(std::vector<Expert>& experts, Tensor weight, Tensor bias) {
    Tensor d_weight = zeros(weight.elems());
    Tensor d_bias = zeros(bias.elems());
    experts.push_back({std::move(weight), std::move(bias), std::move(d_weight), std::move(d_bias)});
  }
  static std::vector<LinearWeights> weights(const std::vector<Expert>& experts) {
    std::vector<LinearWeights> all;
    for (const Expert& expert : experts) all.push_back({expert.weight.in(), expert.bias.in()});
    return all;
  }
  static std::vector<LinearGradients> gradients(const std::vector<Expert>& experts) {
    std::vector<LinearGradients> all;
    for (const Expert& expert : experts) all.push_back({expert.d_weight.inout(), expert.d_bias.inout()});
    return all;
  }

  const MixtureLayer layer_;
  const std::int64_t first_token_;
  std::unique_ptr<core::Device> device_ = core::make_cpu_device();
  Memory memory_{*device_};
  kernels::ThreadPool pool_{1};
  const kernels::Context where_{pool_};
  const Workspace workspace_{memory_, where_};
  Tensor x_, router_, d_router_;
  std::vector<Expert> up_, down_;
  MixtureSaved saved_;
  Tensor all_counts_, d_gates_, d_back_, d_out_, d_here_, d_sent_;

 public:
  Tensor y, dx;
};

using Ranks = std::vector<std::unique_ptr<RankOfMixture>>;

// An all-to-all of all ranks' sides.
void exchange(Ranks& ranks, Exchange (RankOfMixture::*side)()) {
  std::vector<Exchange> sides;
  for (auto& rank : ranks) sides.push_back((*rank.*side)());
  const auto count = [&](std::size_t from, std::size_t to) {
    if (sides[from].matrix == nullptr) return sides[from].input.elems / static_cast<std::int64_t>(ranks.size());
    return sides[from].matrix->at(static_cast<int>(from), static_cast<int>(to));
  };
  for (std::size_t to = 0; to < ranks.size(); ++to) {
    auto* at = sides[to].output.as<float>();
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      const auto* source = sides[from].input.as<float>();
      for (std::size_t before = 0; before < to; ++before) source += count(from, before);
      at = std::copy_n(source, count(from, to), at);
    }
    EXPECT_EQ(at, sides[to].output.as<float>() + sides[to].output.elems) << "all rows have come";
  }
}

void tell_counts(Ranks& ranks) {
  if (!ranks.front()->layer().tells_counts()) return;
  std::vector<std::int32_t> all;
  for (auto& rank : ranks) {
    const Exchange own = rank->layer().exchange_counts(rank->workspace(), rank->saved(), rank->all_counts());
    all.insert(all.end(), own.input.as<std::int32_t>(), own.input.as<std::int32_t>() + own.input.elems);
  }
  for (auto& rank : ranks) {
    std::copy(all.begin(), all.end(), rank->all_counts().as<std::int32_t>());
    rank->layer().counts_exchanged(rank->workspace(), rank->all_counts(), rank->saved());
  }
}

template <class Step>
void each(Ranks& ranks, const Step& step) {
  for (auto& rank : ranks) step(*rank);
}

// The tokens spread over the ranks, the first of which have more.
Ranks run(const MixtureLayer& whole, int num_ranks, bool with_losses) {
  Ranks ranks;
  std::int64_t first = 0;
  for (int r = 0; r < num_ranks; ++r) {
    MixtureLayer layer = whole;
    layer.ranks = num_ranks;
    layer.index = r;
    layer.router.tokens = kTokens / num_ranks + (r < kTokens % num_ranks ? 1 : 0);
    ranks.push_back(std::make_unique<RankOfMixture>(layer, first));
    first += layer.router.tokens;
  }
  const bool alone = num_ranks == 1;
  each(ranks, [](RankOfMixture& rank) { rank.route(); });
  tell_counts(ranks);
  if (!alone) exchange(ranks, &RankOfMixture::dispatch);
  each(ranks, [](RankOfMixture& rank) { rank.experts(); });
  if (!alone) exchange(ranks, &RankOfMixture::combine);
  each(ranks, [](RankOfMixture& rank) {
    rank.finish_forward();
    rank.begin_backward();
  });
  if (!alone) exchange(ranks, &RankOfMixture::combine_back);
  each(ranks, [](RankOfMixture& rank) { rank.experts_back(); });
  if (!alone) exchange(ranks, &RankOfMixture::dispatch_back);
  each(ranks, [&](RankOfMixture& rank) { rank.finish_backward(with_losses); });
  return ranks;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 3e-6) << what << " " << i;
}

// Results of all ranks, put together, are PyTorch's.
void expect_torch(const Ranks& ranks, const TorchResults& torch) {
  std::vector<float> y, dx, d_router(kExperts * kHidden);
  for (const auto& rank : ranks) {
    const auto append = [](std::vector<float>& to, const std::vector<float>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    append(y, RankOfMixture::host(rank->y));
    append(dx, RankOfMixture::host(rank->dx));
    const std::vector<float> term = rank->d_router();
    for (std::size_t i = 0; i < term.size(); ++i) d_router[i] += term[i];
  }
  expect_near(y, torch.at("y"), "y");
  expect_near(dx, torch.at("dx"), "dx");
  expect_near(d_router, torch.at("d_router"), "d_router");
  for (const bool of_up : {true, false}) {
    for (const bool of_weight : {true, false}) {
      std::vector<float> all;
      for (const auto& rank : ranks) {
        const std::vector<float> part = rank->gradient(of_up, of_weight);
        all.insert(all.end(), part.begin(), part.end());
      }
      const std::string name = std::string("d_") + (of_up ? "up" : "down") + (of_weight ? "_weight" : "_bias");
      expect_near(all, torch.at(name), name);
    }
  }
}

MixtureLayer layer_of(kernels::RouterScores scores, std::int64_t capacity, Activation activation) {
  return {.router = {.tokens = kTokens, .experts = kExperts, .top_k = kTopK, .scores = scores, .normalised = true},
          .hidden = kHidden,
          .inner = kInner,
          .capacity = capacity,
          .activation = activation};
}

constexpr auto kGelu = Activation::gelu_in_products;

TEST(Mixture, DroplessWithLossesIsPyTorchs) {
  expect_torch(run(layer_of(kernels::RouterScores::softmax, 0, kGelu), 1, true), kSoftmax);
}

TEST(Mixture, WithACapacityAndSigmoidIsPyTorchs) {
  expect_torch(run(layer_of(kernels::RouterScores::sigmoid, 2, kGelu), 1, false), kSigmoidCapacity2);
}

// Losses are of each rank's own tokens, and so differ from one rank's loss: without them.
TEST(Mixture, OnSeveralRanksItIsTheSame) {
  const MixtureLayer layer = layer_of(kernels::RouterScores::softmax, 0, kGelu);
  const Ranks single = run(layer, 1, false);
  TorchResults expected;
  const auto wide = [](const std::vector<float>& values) { return std::vector<double>(values.begin(), values.end()); };
  expected["y"] = wide(RankOfMixture::host(single[0]->y));
  expected["dx"] = wide(RankOfMixture::host(single[0]->dx));
  expected["d_router"] = wide(single[0]->d_router());
  for (const bool of_up : {true, false}) {
    for (const bool of_weight : {true, false}) {
      expected[std::string("d_") + (of_up ? "up" : "down") + (of_weight ? "_weight" : "_bias")] =
          wide(single[0]->gradient(of_up, of_weight));
    }
  }
  for (const int ranks : {2, 4}) expect_torch(run(layer, ranks, false), expected);
}

// A capacity that nobody reaches drops nothing: rows lie elsewhere, and are exchanged in equal blocks.
TEST(Mixture, ACapacityForAllIsDropless) {
  const Ranks dropless = run(layer_of(kernels::RouterScores::softmax, 0, kGelu), 2, false);
  const Ranks roomy = run(layer_of(kernels::RouterScores::softmax, kTokens, kGelu), 2, false);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(RankOfMixture::host(dropless[r]->y), RankOfMixture::host(roomy[r]->y));
    EXPECT_EQ(RankOfMixture::host(dropless[r]->dx), RankOfMixture::host(roomy[r]->dx));
  }
}

// k T h (EP - 1) / EP per direction, where the router is even: a capacity of an even share makes it so.
TEST(Mixture, ADispatchSendsTheCopiesForOthers) {
  for (const int ranks : {1, 2, 4}) {
    MixtureLayer layer = layer_of(kernels::RouterScores::softmax, 0, kGelu);
    layer.router.tokens = 8;
    layer.capacity = 8 * kTopK / kExperts;
    layer.ranks = ranks;
    MixtureSaved saved;
    saved.all_rows.assign(static_cast<std::size_t>(ranks * kExperts), layer.capacity);
    EXPECT_EQ(layer.sent_bytes(saved, core::DType::f32), 4 * kTopK * 8 * kHidden * (ranks - 1) / ranks);
  }
}

}  // namespace
}  // namespace lockstep::parallel
