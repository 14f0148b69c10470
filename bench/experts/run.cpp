#include "bench/experts/moe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/step/values.h"
#include "core/device.h"
#include "core/dtype.h"
#include "kernels/moe/permute.h"
#include "kernels/residual/residual.h"
#include "parallel/layers/mixture.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store.h"

namespace lockstep::experts_bench {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;
using step_bench::Direction;
using step_bench::Exchanger;
using step_bench::kNothing;
using step_bench::PartSite;
using step_bench::Pass;

parallel::MixtureLayer layer_of(const ExpertsFlags& flags, const Case& one, int index, bool alone) {
  const double even = static_cast<double>(flags.tokens * one.top_k) / one.experts;
  return {.router = {.tokens = flags.tokens, .experts = one.experts, .top_k = one.top_k, .normalised = one.top_k > 1},
          .hidden = flags.hidden,
          .inner = flags.inner,
          .capacity = std::llround(std::ceil(one.capacity_factor * even)),
          .ranks = alone ? 1 : one.ranks,
          .index = alone ? 0 : index};
}

// The layer of a case on one of its ranks, or on a rank of its own that has all experts: a forward and backward as
// lists of tasks.
class RankOfExperts {
 public:
  // Without exchanges the rank is alone. With them it sends the other ranks its numbers of rows: all ranks construct
  // theirs together.
  RankOfExperts(const ExpertsFlags& flags, const Case& one, int index, Exchanger* exchanger,
                const parallel::Workspace& workspace);

  const Pass& pass(Direction direction) const { return passes_[static_cast<std::size_t>(direction)]; }

  std::vector<float> y() const { return step_bench::host_values(memory_.device(), y_.in()); }
  std::vector<float> dx() const { return step_bench::host_values(memory_.device(), dx_.in()); }
  std::int64_t rows_here() const { return layer_.rows_here(saved_); }
  std::int64_t dropped() const;  // copies of this rank's tokens, after a forward
  // By direction: the copies for other ranks, four times in all, and counts.
  std::array<double, 2> formula_bytes() const;
  std::vector<double> loads() const;  // tokens per expert

 private:
  struct Expert {
    Tensor weight, bias, d_weight, d_bias;
  };
  Tensor random(const std::string& name, std::int64_t count, float deviation);
  Expert expert(const std::string& name, std::int64_t outputs, std::int64_t inputs);
  static std::vector<parallel::LinearWeights> weights(const std::vector<Expert>& experts);
  static std::vector<parallel::LinearGradients> gradients(const std::vector<Expert>& experts);

  void route();
  void fit_bias(const std::vector<double>& targets);
  void shared_forward();
  void shared_backward();
  void run_experts();
  void run_experts_back();
  void finish_forward();
  void finish_backward();
  void exchange_counts();
  void exchange(const parallel::RowExchange& rows);
  int add_kernel(Direction direction, Share share, std::function<void()> run, int after = kNothing);
  int add_exchange(Direction direction, Share share, std::function<void()> run, int after);
  void add_forward();
  void add_backward();

  const ExpertsFlags& flags_;
  const Case& case_;
  Exchanger* const exchanger_;
  const parallel::Workspace& workspace_;
  parallel::Memory& memory_;
  const parallel::MixtureLayer layer_;
  Tensor x_, dy_, router_, d_router_, bias_;
  std::vector<Expert> up_, down_, shared_;
  parallel::MixtureSaved saved_;
  parallel::MlpSaved shared_saved_;
  Tensor shared_y_, shared_dx_, y_, dx_;
  Tensor all_counts_, d_gates_, d_back_, d_out_, d_here_, d_sent_;
  std::array<Pass, 2> passes_;  // by direction
};

RankOfExperts::RankOfExperts(const ExpertsFlags& flags, const Case& one, int index, Exchanger* exchanger,
                             const parallel::Workspace& workspace)
    : flags_(flags),
      case_(one),
      exchanger_(exchanger),
      workspace_(workspace),
      memory_(workspace.memory),
      layer_(layer_of(flags, one, index, exchanger == nullptr)) {
  const std::string of_rank = ".of_rank" + std::to_string(index);
  x_ = random("x" + of_rank, flags.tokens * flags.hidden, 1);
  dy_ = random("dy" + of_rank, flags.tokens * flags.hidden, 1);
  router_ = random("router", one.experts * flags.hidden, 1 / std::sqrt(static_cast<float>(flags.hidden)));
  d_router_ = memory_.make_zeroed(MemoryKind::gradients, core::DType::f32, router_.elems());
  const std::int64_t here = layer_.experts_here();
  for (std::int64_t e = layer_.index * here; e < (layer_.index + 1) * here; ++e) {
    up_.push_back(expert("up" + std::to_string(e), flags.inner, flags.hidden));
    down_.push_back(expert("down" + std::to_string(e), flags.hidden, flags.inner));
  }
  if (flags.shared > 0) {
    shared_.push_back(expert("shared_up", flags.shared, flags.hidden));
    shared_.push_back(expert("shared_down", flags.hidden, flags.shared));
  }
  if (const std::vector<double> targets = one.targets(); !targets.empty()) fit_bias(targets);
  add_forward();
  add_backward();
}

Tensor RankOfExperts::random(const std::string& name, std::int64_t count, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel::fill_initial_values({.name = name, .shape = {count}, .deviation = deviation}, kSeed, 0, values);
  Tensor made = memory_.make(MemoryKind::weights, flags_.dtype, count);
  parallel::write_rounded(memory_.device(), made.out(), values);
  return made;
}

RankOfExperts::Expert RankOfExperts::expert(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
  const auto zeros = [&](std::int64_t count) {
    return memory_.make_zeroed(MemoryKind::gradients, core::DType::f32, count);
  };
  return {random(name, outputs * inputs, 1 / std::sqrt(static_cast<float>(inputs))), random(name + "b", outputs, 0.1F),
          zeros(outputs * inputs), zeros(outputs)};
}

std::vector<parallel::LinearWeights> RankOfExperts::weights(const std::vector<Expert>& experts) {
  std::vector<parallel::LinearWeights> all;
  for (const Expert& one : experts) all.push_back({one.weight.in(), one.bias.in()});
  return all;
}

std::vector<parallel::LinearGradients> RankOfExperts::gradients(const std::vector<Expert>& experts) {
  std::vector<parallel::LinearGradients> all;
  for (const Expert& one : experts) all.push_back({one.d_weight.inout(), one.d_bias.inout()});
  return all;
}

void RankOfExperts::route() {
  layer_.route(workspace_, router_.in(), bias_.in(), x_.in(), saved_);
}

// Adjusts the bias until the experts have the stated loads, like loss-free balancing towards even ones (Wang et al.
// 2024, arXiv:2408.15664, algorithm 1), but in proportion to the difference and with decreasing steps.
void RankOfExperts::fit_bias(const std::vector<double>& targets) {
  constexpr int kRounds = 400;
  constexpr double kFaded = 0.99;
  bias_ = memory_.make_zeroed(MemoryKind::weights, core::DType::f32, case_.experts);
  double step = 0.5;
  for (int round = 0; round < kRounds; ++round, step *= kFaded) {
    route();
    for (std::size_t e = 0; e < targets.size(); ++e) {
      const double share = saved_.counts.as<std::int32_t>()[e] / static_cast<double>(layer_.router.copies());
      bias_.as<float>()[e] += static_cast<float>(step * (targets[e] - share));
    }
  }
}

std::int64_t RankOfExperts::dropped() const {
  std::int64_t dropped = 0;
  for (std::int64_t e = 0; layer_.capacity > 0 && e < case_.experts; ++e) {
    dropped += std::max<std::int64_t>(0, saved_.counts.as<std::int32_t>()[e] - layer_.capacity);
  }
  return dropped;
}

std::vector<double> RankOfExperts::loads() const {
  const auto* const counts = saved_.counts.as<std::int32_t>();
  return {counts, counts + case_.experts};
}

// The forward sends this rank's rows to the experts' ranks and returns the rows that those have sent here; so does the
// backward.
std::array<double, 2> RankOfExperts::formula_bytes() const {
  if (layer_.ranks == 1) return {};
  std::int64_t back = 0;
  const std::int64_t row_bytes = flags_.hidden * static_cast<std::int64_t>(core::size_of(flags_.dtype));
  for (int from = 0; from < layer_.ranks; ++from) {
    if (from == layer_.index) continue;
    const auto first =
        saved_.all_rows.begin() + std::int64_t{from} * case_.experts + layer_.index * layer_.experts_here();
    for (auto rows = first; rows != first + layer_.experts_here(); ++rows) back += *rows * row_bytes;
  }
  const auto rows = static_cast<double>(layer_.sent_bytes(saved_, flags_.dtype) + back);
  const auto counts = static_cast<std::int64_t>(sizeof(std::int32_t)) * case_.experts * (layer_.ranks - 1);
  return {rows + static_cast<double>(layer_.tells_counts() ? counts : 0), rows};
}

void RankOfExperts::exchange_counts() {
  const parallel::RowExchange counts = layer_.exchange_counts(workspace_, saved_, all_counts_);
  const collectives::Operation gather{
      .kind = collectives::Kind::all_gather, .count = counts.input.elems, .dtype = core::DType::i32};
  exchanger_->prepared(gather, "auto").run(counts.input.data, counts.output.data);
  layer_.counts_exchanged(workspace_, all_counts_, saved_);
}

// The router's result is the same in every round, so that each size is prepared once.
void RankOfExperts::exchange(const parallel::RowExchange& rows) {
  collectives::Operation operation{
      .kind = collectives::Kind::all_to_all, .count = rows.output.elems / layer_.ranks, .dtype = flags_.dtype};
  if (rows.matrix != nullptr) {
    operation = {.kind = collectives::Kind::all_to_all_v, .dtype = flags_.dtype, .matrix = rows.matrix};
  }
  exchanger_->run(operation, rows.input.data, rows.output.data);
}

// The shared experts, which overlap with the exchange of the routed experts' rows.
void RankOfExperts::shared_forward() {
  const parallel::MlpLayer mlp{flags_.tokens, flags_.hidden, flags_.shared};
  const auto layers = weights(shared_);
  mlp.up(workspace_, layers[0], x_.in(), shared_saved_);
  shared_y_ = memory_.make(MemoryKind::activations, flags_.dtype, x_.elems());
  mlp.of_down().forward(workspace_, layers[1], shared_saved_.act.in(), shared_y_.out());
}

void RankOfExperts::shared_backward() {
  const parallel::MlpLayer mlp{flags_.tokens, flags_.hidden, flags_.shared};
  const auto layers = weights(shared_);
  const auto into = gradients(shared_);
  const Tensor d_pre = mlp.down_gradient(workspace_, layers[1].weight, shared_saved_, dy_.in());
  mlp.of_down().weight_gradient(workspace_, shared_saved_.act.in(), dy_.in(), into[1]);
  shared_dx_ = memory_.make(MemoryKind::activations, flags_.dtype, x_.elems());
  mlp.of_up().input_gradient(workspace_, layers[0].weight, d_pre.in(), shared_dx_.out());
  mlp.of_up().weight_gradient(workspace_, x_.in(), d_pre.in(), into[0]);
}

void RankOfExperts::run_experts() {
  layer_.up(workspace_, weights(up_), saved_);
  layer_.down(workspace_, weights(down_), saved_);
}

void RankOfExperts::run_experts_back() {
  const Tensor d_pre = layer_.down_gradient(workspace_, weights(down_), saved_, d_out_.in());
  layer_.weight_gradient(workspace_, saved_, saved_.mlp.act, d_out_, gradients(down_));
  Tensor& d_rows = layer_.ranks == 1 ? d_sent_ : d_here_;
  d_rows = layer_.up_gradient(workspace_, weights(up_), saved_, d_pre.in());
  layer_.weight_gradient(workspace_, saved_, saved_.here, d_pre, gradients(up_));
}

void RankOfExperts::finish_forward() {
  y_ = memory_.make(MemoryKind::activations, flags_.dtype, x_.elems());
  layer_.unpermute(workspace_, saved_, y_.out());
  if (shared_.empty()) return;
  kernels::run(kernels::ResidualAdd{.count = y_.elems(), .a = y_.in(), .b = shared_y_.in(), .y = y_.out()},
               workspace_.where);
}

void RankOfExperts::finish_backward() {
  dx_ = memory_.make(MemoryKind::activations, flags_.dtype, x_.elems());
  layer_.permute_gradient(workspace_, saved_, d_sent_.in(), dx_.out());
  if (shared_.empty()) return;
  kernels::run(kernels::ResidualAdd{.count = dx_.elems(), .a = dx_.in(), .b = shared_dx_.in(), .y = dx_.out()},
               workspace_.where);
}

int RankOfExperts::add_kernel(Direction direction, Share share, std::function<void()> run, int after) {
  return passes_[static_cast<std::size_t>(direction)].add(false, static_cast<std::size_t>(share), std::move(run),
                                                          after);
}

int RankOfExperts::add_exchange(Direction direction, Share share, std::function<void()> run, int after) {
  if (layer_.ranks == 1) return kNothing;
  return passes_[static_cast<std::size_t>(direction)].add(true, static_cast<std::size_t>(share), std::move(run), after);
}

void RankOfExperts::add_forward() {
  constexpr Direction kForward = Direction::forward;
  add_kernel(kForward, Share::router, [this] { route(); });
  const int permuted = add_kernel(kForward, Share::permute, [this] { layer_.permute(workspace_, x_.in(), saved_); });
  const auto dispatch = [this] {
    if (layer_.tells_counts()) exchange_counts();
    exchange(layer_.dispatch(workspace_, saved_, saved_.sent, saved_.here));
  };
  const int dispatched = add_exchange(kForward, Share::dispatch, dispatch, permuted);
  if (!shared_.empty()) add_kernel(kForward, Share::shared, [this] { shared_forward(); });
  const int computed = add_kernel(
      kForward, Share::experts, [this] { run_experts(); }, dispatched);
  const auto combine = [this] { exchange(layer_.combine(workspace_, saved_, saved_.out, saved_.back)); };
  const int combined = add_exchange(kForward, Share::combine, combine, computed);
  add_kernel(
      kForward, Share::unpermute, [this] { finish_forward(); }, combined);
}

void RankOfExperts::add_backward() {
  constexpr Direction kBackward = Direction::backward;
  const int split = add_kernel(kBackward, Share::unpermute, [this] {
    auto gradients = layer_.unpermute_gradient(workspace_, saved_, dy_.in());
    (layer_.ranks == 1 ? d_out_ : d_back_) = std::move(gradients.rows);
    d_gates_ = std::move(gradients.gates);
  });
  const auto combine = [this] { exchange(layer_.dispatch(workspace_, saved_, d_back_, d_out_)); };
  const int combined = add_exchange(kBackward, Share::combine, combine, split);
  if (!shared_.empty()) add_kernel(kBackward, Share::shared, [this] { shared_backward(); });
  const int computed = add_kernel(
      kBackward, Share::experts, [this] { run_experts_back(); }, combined);
  const auto dispatch = [this] { exchange(layer_.combine(workspace_, saved_, d_here_, d_sent_)); };
  const int dispatched = add_exchange(kBackward, Share::dispatch, dispatch, computed);
  add_kernel(
      kBackward, Share::permute, [this] { finish_backward(); }, dispatched);
  add_kernel(kBackward, Share::router, [this] {
    const Tensor d_logits = layer_.router_gradient(workspace_, router_.in(), saved_, d_gates_.in(), {}, dx_.inout());
    layer_.router_weight_gradient(workspace_, x_.in(), d_logits.in(), d_router_.inout());
  });
}

// Number of elements whose difference is larger than another order of sums and roundings to the dtype explain.
std::int64_t wrong_elems(const ExpertsFlags& flags, const std::vector<float>& found, const std::vector<float>& wanted) {
  const double allowed = step_bench::largest_of(wanted) *
                         (core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(flags.hidden + flags.inner)) +
                          core::sum_tolerance(flags.dtype, 8));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += step_bench::is_beyond(found[i], wanted[i], allowed) ? 1 : 0;
  return wrong;
}

// A mixture on one of its ranks, and its results on one rank that has all experts.
class Mixture final : public step_bench::PassPart {
 public:
  Mixture(const ExpertsFlags& flags, const Case& one, PartSite& site)
      : PassPart(site.runner),
        flags_(flags),
        exchanger_(site.rank, 0, flags.algorithm),
        layer_(flags, one, site.index(), &exchanger_, site.workspace) {
    const auto device = core::make_cpu_device();
    parallel::Memory memory(*device);
    const parallel::Workspace workspace{memory, site.where};
    RankOfExperts alone(flags, one, site.index(), nullptr, workspace);
    for (const Direction direction : step_bench::kDirections) {
      for (const step_bench::Task& task : alone.pass(direction).tasks()) task.run();
    }
    y_ = alone.y();
    dx_ = alone.dx();
  }

  const Pass& pass(Mode /*mode*/, Direction direction) const override { return layer_.pass(direction); }
  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    if (direction == Direction::forward) return;
    findings.wrong += wrong_elems(flags_, layer_.y(), y_) + wrong_elems(flags_, layer_.dx(), dx_);
  }
  std::optional<std::size_t> remaining_share() const override { return std::nullopt; }
  std::array<double, 2> formula_bytes() override { return layer_.formula_bytes(); }
  // Rows, dropped copies, and the experts' loads.
  std::vector<double> figures() override {
    std::vector<double> figures = layer_.loads();
    figures.insert(figures.begin(), {static_cast<double>(layer_.rows_here()), static_cast<double>(layer_.dropped())});
    return figures;
  }

 private:
  const ExpertsFlags& flags_;
  Exchanger exchanger_;
  RankOfExperts layer_;
  std::vector<float> y_, dx_;
};

double sum_of(const std::vector<std::vector<double>>& of_ranks, std::size_t figure) {
  double sum = 0;
  for (const std::vector<double>& of_rank : of_ranks) sum += of_rank[figure];
  return sum;
}

void add_experts_times(Result& result) {
  std::vector<double> slowest;
  std::vector<double> mean;
  for (const auto& round : result.part.times.of_ranks(Mode::serial)) {
    std::vector<double> us;
    for (const step_bench::PassTime& rank : round) us.push_back(rank.spent[static_cast<std::size_t>(Share::experts)]);
    slowest.push_back(*std::max_element(us.begin(), us.end()));
    mean.push_back(std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size()));
  }
  result.experts_slowest_us = core::median(slowest);
  result.experts_mean_us = core::median(mean);
}

}  // namespace

double Result::share_us(Mode mode, Share share) const {
  double us = 0;
  for (const Direction direction : step_bench::kDirections) {
    us += part.times.median_spent(mode, direction)[static_cast<std::size_t>(share)];
  }
  return us;
}

Result run_case(const ExpertsFlags& flags, const Case& one) {
  const step_bench::PartRow row{
      .num_ranks = one.ranks, .tokens = flags.tokens * one.ranks, .modes = {Mode::serial, Mode::overlapped}};
  Result result;
  result.part = std::move(run_parts(flags, row, [&](PartSite& site) {
                            step_bench::Parts parts;
                            parts.push_back(std::make_unique<Mixture>(flags, one, site));
                            return parts;
                          }).front());
  add_experts_times(result);
  const std::vector<std::vector<double>>& figures = result.part.figures;
  for (const std::vector<double>& of_rank : figures) {
    result.most_rows = std::max(result.most_rows, static_cast<std::int64_t>(of_rank[0]));
  }
  result.mean_rows = sum_of(figures, 0) / one.ranks;
  result.dropped = static_cast<std::int64_t>(sum_of(figures, 1));
  result.copies = flags.tokens * one.top_k * one.ranks;
  for (std::size_t f = 2; f < figures.front().size(); ++f) {
    result.most_load = std::max(result.most_load, sum_of(figures, f));
  }
  result.most_load *= one.experts / static_cast<double>(result.copies);
  return result;
}

}  // namespace lockstep::experts_bench
