#include "bench/experts/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "bench/place/place.h"
#include "collectives/plan/cost.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/ranks.h"
#include "core/wait.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/permute.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/store.h"

namespace lockstep::experts_bench {

using parallel::MemoryKind;
using parallel::Tensor;
using tp_linear::TaskKind;

namespace {

constexpr std::size_t kExchanges = 0;  // the channel

parallel::MixtureLayer layer_of(const ExpertsFlags& flags, const Case& one, int index, bool alone) {
  const double even = static_cast<double>(flags.tokens * one.top_k) / one.experts;
  return {.router = {.tokens = flags.tokens, .experts = one.experts, .top_k = one.top_k, .normalised = one.top_k > 1},
          .hidden = flags.hidden,
          .inner = flags.inner,
          .capacity = std::llround(std::ceil(one.capacity_factor * even)),
          .ranks = alone ? 1 : one.ranks,
          .index = alone ? 0 : index};
}

}  // namespace

RankOfExperts::RankOfExperts(const ExpertsFlags& flags, const Case& one, int index, backends::MeshRank& mesh,
                             kernels::ThreadPool& pool, bool alone)
    : flags_(flags),
      case_(one),
      mesh_(mesh),
      device_(alone ? core::make_cpu_device() : nullptr),
      memory_(alone ? *device_ : mesh.device),
      where_(pool),
      workspace_{memory_, where_},
      layer_(layer_of(flags, one, index, alone)) {
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
  make_passes();
}

Tensor RankOfExperts::random(const std::string& name, std::int64_t count, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel::fill_initial_values({.name = name, .shape = {count}, .deviation = deviation}, kSeed, 0, values);
  Tensor made = memory_.make(MemoryKind::weights, flags_.dtype, count);
  if (flags_.dtype == core::DType::f32) {
    std::copy(values.begin(), values.end(), made.as<float>());
  } else {
    std::transform(values.begin(), values.end(), made.as<core::BFloat16>(), core::to_bfloat16);
  }
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

std::vector<float> RankOfExperts::host(const Tensor& tensor) const {
  std::vector<float> values(static_cast<std::size_t>(tensor.elems()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        flags_.dtype == core::DType::f32 ? tensor.as<float>()[i] : core::to_float(tensor.as<core::BFloat16>()[i]);
  }
  return values;
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

std::int64_t RankOfExperts::sent_bytes() const {
  if (layer_.ranks == 1) return 0;
  const auto counts = static_cast<std::int64_t>(sizeof(std::int32_t)) * case_.experts * (layer_.ranks - 1);
  // Half of the exchanges return rows from the experts: those that other ranks have sent here.
  std::int64_t back = 0;
  const std::int64_t row_bytes = flags_.hidden * static_cast<std::int64_t>(core::size_of(flags_.dtype));
  for (int from = 0; from < layer_.ranks; ++from) {
    if (from == layer_.index) continue;
    const auto first =
        saved_.all_rows.begin() + std::int64_t{from} * case_.experts + layer_.index * layer_.experts_here();
    for (auto rows = first; rows != first + layer_.experts_here(); ++rows) back += *rows * row_bytes;
  }
  return 2 * (layer_.sent_bytes(saved_, flags_.dtype) + back) + (layer_.tells_counts() ? counts : 0);
}

PartTimes RankOfExperts::take_times() {
  return std::exchange(times_, PartTimes{});
}

// ---- pieces

void RankOfExperts::exchange_counts() {
  const parallel::RowExchange counts = layer_.exchange_counts(workspace_, saved_, all_counts_);
  backends::Prepared& gather = prepared_[{}];
  if (gather.collective == nullptr) {
    gather = mesh_.prepare(
        kExchanges, {.kind = collectives::Kind::all_gather, .count = counts.input.elems, .dtype = core::DType::i32},
        "auto");
  }
  gather.collective->run(counts.input.data, counts.output.data);
  layer_.counts_exchanged(workspace_, all_counts_, saved_);
}

// The router's result is the same in every round, so that each size is prepared once.
void RankOfExperts::exchange(const parallel::RowExchange& rows) {
  const std::int64_t block = rows.output.elems / layer_.ranks;
  backends::Prepared& one = prepared_[rows.matrix == nullptr ? std::vector{block} : rows.matrix->counts];
  if (one.collective == nullptr) {
    collectives::Operation operation{
        .kind = collectives::Kind::all_to_all, .count = block, .dtype = flags_.dtype, .matrix = rows.matrix};
    if (rows.matrix != nullptr) operation.kind = collectives::Kind::all_to_all_v;
    one = mesh_.prepare(kExchanges, operation, rows.matrix == nullptr ? flags_.algorithm : "auto");
  }
  one.collective->run(rows.input.data, rows.output.data);
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
  kernels::run(kernels::ResidualAdd{.count = y_.elems(), .a = y_.in(), .b = shared_y_.in(), .y = y_.out()}, where_);
}

void RankOfExperts::finish_backward() {
  dx_ = memory_.make(MemoryKind::activations, flags_.dtype, x_.elems());
  layer_.permute_gradient(workspace_, saved_, d_sent_.in(), dx_.out());
  if (shared_.empty()) return;
  kernels::run(kernels::ResidualAdd{.count = dx_.elems(), .a = dx_.in(), .b = shared_dx_.in(), .y = dx_.out()}, where_);
}

// ---- the order of pieces, and their dependences

void RankOfExperts::make_passes() {
  const auto timed = [this](Part part, auto work) {
    return [this, part, work] {
      const auto start = core::Clock::now();
      work();
      times_[static_cast<std::size_t>(part)] += core::us_between(start, core::Clock::now());
    };
  };
  const auto kernel = [&](std::size_t pass, Part part, auto work, int after = tp_linear::kNothing) {
    return passes_[pass].add(part == Part::experts || part == Part::shared ? TaskKind::product : TaskKind::other_kernel,
                             timed(part, work), after);
  };
  const auto rows = [&](std::size_t pass, Part part, auto work, int after) {
    if (layer_.ranks == 1) return tp_linear::kNothing;
    return passes_[pass].add(TaskKind::exchange, timed(part, work), after);
  };
  kernel(0, Part::router, [this] { route(); });
  const int permuted = kernel(0, Part::permute, [this] { layer_.permute(workspace_, x_.in(), saved_); });
  const int dispatched = rows(
      0, Part::dispatch,
      [this] {
        if (layer_.tells_counts()) exchange_counts();
        exchange(layer_.dispatch(workspace_, saved_, saved_.sent, saved_.here));
      },
      permuted);
  if (!shared_.empty()) kernel(0, Part::shared, [this] { shared_forward(); });
  const int computed = kernel(
      0, Part::experts, [this] { run_experts(); }, dispatched);
  const int combined = rows(
      0, Part::combine, [this] { exchange(layer_.combine(workspace_, saved_, saved_.out, saved_.back)); }, computed);
  kernel(
      0, Part::unpermute, [this] { finish_forward(); }, combined);

  const int split = kernel(1, Part::unpermute, [this] {
    auto made = layer_.unpermute_gradient(workspace_, saved_, dy_.in());
    (layer_.ranks == 1 ? d_out_ : d_back_) = std::move(made.rows);
    d_gates_ = std::move(made.gates);
  });
  const int went = rows(
      1, Part::combine, [this] { exchange(layer_.dispatch(workspace_, saved_, d_back_, d_out_)); }, split);
  if (!shared_.empty()) kernel(1, Part::shared, [this] { shared_backward(); });
  const int back = kernel(
      1, Part::experts, [this] { run_experts_back(); }, went);
  const int home = rows(
      1, Part::dispatch, [this] { exchange(layer_.combine(workspace_, saved_, d_here_, d_sent_)); }, back);
  kernel(
      1, Part::permute, [this] { finish_backward(); }, home);
  kernel(1, Part::router, [this] {
    const Tensor d_logits = layer_.router_gradient(workspace_, router_.in(), saved_, d_gates_.in(), {}, dx_.inout());
    layer_.router_weight_gradient(workspace_, x_.in(), d_logits.in(), d_router_.inout());
  });
}

namespace {

// Counts the bytes that a rank's collectives send, from the plans that they run.
class Counted final : public collectives::Collective {
 public:
  Counted(std::unique_ptr<Collective> inner, std::int64_t bytes, std::int64_t& sent)
      : inner_(std::move(inner)), bytes_(bytes), sent_(sent) {}
  void run(const void* input, void* output) override {
    inner_->run(input, output);
    sent_ += bytes_;
  }

 private:
  const std::unique_ptr<Collective> inner_;
  const std::int64_t bytes_;
  std::int64_t& sent_;
};

backends::MeshRank counting(backends::MeshRank& rank, std::int64_t& sent) {
  const auto prepare = [&](std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) {
    backends::Prepared made = rank.prepare(channel, operation, algorithm);
    const auto own = static_cast<std::size_t>(rank.messages.rank());
    const std::int64_t bytes = plan::count(*made.plan, plan::contents_of(*made.plan), operation).ranks[own].bytes_sent;
    made.collective = std::make_unique<Counted>(std::move(made.collective), bytes, sent);
    return made;
  };
  return {rank.messages, rank.device, rank.abort, rank.threaded, prepare, rank.queues, rank.settle};
}

// Number of elements whose difference is larger than another order of sums and roundings to the dtype explain.
std::int64_t wrong_elems(const ExpertsFlags& flags, const std::vector<float>& found, const std::vector<float>& wanted) {
  float largest = 0;
  for (const float value : wanted) largest = std::max(largest, std::abs(value));
  const double allowed =
      largest * (core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(flags.hidden + flags.inner)) +
                 core::sum_tolerance(flags.dtype, 8));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += std::abs(found[i] - wanted[i]) <= allowed ? 0 : 1;
  return wrong;
}

constexpr std::array kLayerWays{tp_linear::Way::one_by_one, tp_linear::Way::beside};

class RankRun {
 public:
  RankRun(const ExpertsFlags& flags, const Case& one, backends::MeshRank& mesh)
      : flags_(flags),
        case_(one),
        mesh_(counting(mesh, sent_)),
        index_(mesh.messages.rank()),
        pool_(flags.threads),
        policy_(core::WaitPolicy::beside_work(one.ranks * (flags.threads + 1), core::usable_cores(), flags.timeout)),
        runner_(mesh_, 0, policy_) {
    kernels::choose_gemms_by_rule(kernels::Context(pool_));
    layer_.emplace(flags, one, index_, mesh_, pool_, false);
    RankOfExperts alone(flags, one, index_, mesh_, pool_, true);
    run_pass(alone.forward(), tp_linear::Way::one_by_one);
    run_pass(alone.backward(), tp_linear::Way::one_by_one);
    y_ = alone.y();
    dx_ = alone.dx();
  }

  // The result is the same on all ranks.
  Result run() {
    if (index_ == 0) energy_.emplace(program::open_energy({}, nullptr, case_.ranks));
    for (int round = -flags_.warmup_rounds; round < flags_.rounds; ++round) {
      for (std::size_t way = 0; way < kNumWays; ++way) run_way(way, round >= 0);
    }
    finish();
    if (energy_) {
      result_.energy = energy_->record(flags_.tokens * case_.ranks);
      result_.energy_text = energy_->text(flags_.tokens * case_.ranks);
    }
    return std::move(result_);
  }

 private:
  void run_pass(const tp_linear::Pass& pass, tp_linear::Way way) { runner_.run(pass, way); }

  struct Timed {
    double us = 0;
    PartTimes parts = {};
  };
  void run_way(std::size_t way, bool counts) {
    double experts_us = 0;
    const std::int64_t sent_before = sent_;
    for (std::size_t d = 0; d < 2; ++d) {
      mesh_.messages.barrier();
      layer_->take_times();
      const bool draws =
          counts && energy_ && way == static_cast<std::size_t>(Way::async);  // the energy of these runs counts
      if (draws) energy_->begin_step();
      const auto start = core::Clock::now();
      run_pass(d == 0 ? layer_->forward() : layer_->backward(), kLayerWays.at(way));
      const Timed mine{core::us_between(start, core::Clock::now()), layer_->take_times()};
      if (draws) energy_->end_step(d == 1 ? 1 : 0);
      experts_us += mine.parts[static_cast<std::size_t>(Part::experts)];
      const std::vector<Timed> all = transports::all_gather_value(mesh_.messages, mine);
      const Timed& slowest =
          *std::max_element(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
      if (!counts) continue;
      result_.samples_us[way][d].push_back(slowest.us);
      parts_[way][d].push_back(slowest.parts);
    }
    const std::vector<double> all = transports::all_gather_value(mesh_.messages, experts_us);
    if (!counts) return;
    if (way == static_cast<std::size_t>(Way::serial)) {
      slowest_us_.push_back(*std::max_element(all.begin(), all.end()));
      mean_us_.push_back(std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size()));
    }
    last_sent_ = sent_ - sent_before;
    ++result_.checked_passes;
    result_.wrong += wrong_elems(flags_, layer_->y(), y_) + wrong_elems(flags_, layer_->dx(), dx_);
  }

  std::int64_t sum(std::int64_t mine) {
    const auto all = transports::all_gather_value(mesh_.messages, mine);
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
  }

  void finish() {
    for (std::size_t way = 0; way < kNumWays; ++way) {
      for (std::size_t d = 0; d < 2; ++d)
        result_.parts_us[way][d] = parts_[way][d][tp_linear::median_round(result_.samples_us[way][d])];
    }
    result_.experts_slowest_us = core::median(slowest_us_);
    result_.experts_mean_us = core::median(mean_us_);
    const auto rows = transports::all_gather_value(mesh_.messages, layer_->rows_here());
    result_.most_rows = *std::max_element(rows.begin(), rows.end());
    result_.mean_rows = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})) /
                        static_cast<double>(rows.size());
    result_.copies = sum(flags_.tokens * case_.top_k);
    result_.dropped = sum(layer_->dropped());
    result_.sent_bytes = sum(last_sent_);
    result_.formula_bytes = sum(layer_->sent_bytes());
    result_.wrong = sum(result_.wrong);
    const std::vector<double> loads = layer_->loads();
    double most = 0;
    for (const double load : loads) most = std::max(most, static_cast<double>(sum(static_cast<std::int64_t>(load))));
    result_.most_load = most * case_.experts / static_cast<double>(result_.copies);
  }

  const ExpertsFlags& flags_;
  const Case& case_;
  std::int64_t sent_ = 0;
  std::int64_t last_sent_ = 0;
  backends::MeshRank mesh_;
  const int index_;
  kernels::ThreadPool pool_;
  const core::WaitPolicy policy_;
  std::optional<RankOfExperts> layer_;
  std::vector<float> y_, dx_;  // results of the layer on one rank
  Result result_;
  std::array<std::array<std::vector<PartTimes>, 2>, kNumWays> parts_;
  std::vector<double> slowest_us_, mean_us_;
  std::optional<program::StepEnergy> energy_;  // on rank 0
  tp_linear::PassRunner runner_;               // destroyed first
};

}  // namespace

Result run_case(const ExpertsFlags& flags, const Case& one) {
  backends::Channel members;
  for (int r = 0; r < one.ranks; ++r) members.push_back(r);
  const std::array channels{members};
  const backends::MeshOptions options{.num_ranks = one.ranks,
                                      .threads_per_rank = flags.threads + 1,
                                      .link = flags.link,
                                      .timeout = flags.timeout,
                                      .queue_of_channel = {0}};
  Result result;
  backends::run_mesh(options, channels, [&](backends::MeshRank& rank) {
    RankRun run(flags, one, rank);
    Result mine = run.run();
    if (rank.messages.rank() == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace lockstep::experts_bench
