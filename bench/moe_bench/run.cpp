#include "bench/moe_bench/moe.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bench/step/layer_part.h"
#include "bench/step/values.h"
#include "core/dtype.h"
#include "parallel/layers/mixture.h"
#include "trainer/model/gpt_stage.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::experts_bench {
namespace {

using step_bench::Direction;
using step_bench::LayerBlock;
using step_bench::LayerInputs;
using step_bench::LayerRank;
using step_bench::PartSite;
using Kind = workload::OperationKind;

std::size_t share_of(Kind kind, bool /*is_exchange*/) {
  const auto share = [kind] {
    switch (kind) {
      case Kind::router:
        return Share::router;
      case Kind::permute:
        return Share::permute;
      case Kind::dispatch:
        return Share::dispatch;
      case Kind::shared_experts:
        return Share::shared;
      case Kind::combine:
        return Share::combine;
      case Kind::unpermute:
        return Share::unpermute;
      default:
        return Share::experts;
    }
  };
  return static_cast<std::size_t>(share());
}

// The mixture of a layer on `ranks` of its ranks.
LayerBlock block_of(const ExpertsFlags& flags, const Case& bench_case, int ranks) {
  LayerBlock block;
  workload::Model& model = block.model;
  model.layers = model.heads = model.kv_heads = 1;
  model.hidden = model.head_size = flags.hidden;
  model.ffn_hidden = flags.inner;
  model.sequence = flags.tokens;
  model.experts = bench_case.experts;
  model.experts_per_token = bench_case.top_k;
  model.shared_hidden = flags.shared;
  model.capacity_factor = bench_case.capacity_factor;
  model.bias_rate = bench_case.targets().empty() ? 0 : 1;  // otherwise the router has no bias
  model.dropout = false;
  block.layout.dp = block.layout.ep = ranks;
  block.layout.compute = flags.dtype;
  block.share_of = share_of;
  return block;
}

// Adjusts the bias of the router until the experts have the stated loads, like loss-free balancing towards even ones
// (Wang et al. 2024, arXiv:2408.15664, algorithm 1), but in proportion to the difference and with decreasing steps.
std::vector<float> fitted_bias(const LayerBlock& block, LayerRank& rank, const std::vector<double>& targets,
                               const parallel::Workspace& workspace) {
  constexpr int kRounds = 400;
  constexpr double kFaded = 0.99;
  const workload::Model& model = block.model;
  const parallel::MixtureLayer layer{.router = {.tokens = model.sequence,
                                                .experts = model.experts,
                                                .top_k = model.experts_per_token,
                                                .normalised = model.experts_per_token > 1},
                                     .hidden = model.hidden,
                                     .inner = model.ffn_hidden};
  const kernels::In router = rank.weight(workload::LayerIndices(model).router.weight);
  std::vector<float> bias(targets.size());
  parallel::MixtureSaved saved;
  double step = 0.5;
  for (int round = 0; round < kRounds; ++round, step *= kFaded) {
    layer.route(workspace, router, {bias.data(), core::DType::f32, model.experts}, rank.x(), saved);
    for (std::size_t e = 0; e < targets.size(); ++e) {
      const double share = saved.counts.as<std::int32_t>()[e] / static_cast<double>(layer.router.copies());
      bias[e] += static_cast<float>(step * (targets[e] - share));
    }
  }
  return bias;
}

// Number of elements whose difference is larger than another order of sums and roundings to the dtype explains.
std::int64_t wrong_elems(const ExpertsFlags& flags, const std::vector<float>& found, const std::vector<float>& wanted) {
  const double allowed = step_bench::largest_of(wanted) *
                         (core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(flags.hidden + flags.inner)) +
                          core::sum_tolerance(flags.dtype, 8));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += step_bench::is_beyond(found[i], wanted[i], allowed) ? 1 : 0;
  return wrong;
}

LayerInputs inputs_of(const ExpertsFlags& flags, int index) {
  const std::string of_rank = ".of_rank" + std::to_string(index);
  const std::int64_t count = flags.tokens * flags.hidden;
  return {step_bench::random_rows("x" + of_rank, count), step_bench::random_rows("dy" + of_rank, count)};
}

// A mixture on one of its ranks, and its results on one rank that has all experts.
class Mixture final : public step_bench::LayerPart {
 public:
  Mixture(const ExpertsFlags& flags, const Case& bench_case, PartSite& site)
      : LayerPart(site, block_of(flags, bench_case, bench_case.ranks), flags.algorithm, inputs_of(flags, site.index())),
        flags_(flags),
        case_(bench_case),
        index_(site.index()) {
    run_alone();
    all_loads_.resize(loads_.size() * static_cast<std::size_t>(bench_case.ranks));
    site.rank.messages.all_gather(std::as_bytes(std::span<const std::int64_t>(loads_)),
                                  std::as_writable_bytes(std::span<std::int64_t>(all_loads_)));
  }

  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    if (direction == Direction::forward) return;
    findings.wrong += wrong_elems(flags_, layer_.y(), y_) + wrong_elems(flags_, layer_.dx(), dx_);
  }
  std::optional<std::size_t> remaining_share() const override { return std::nullopt; }

  // The forward sends this rank's rows to the experts' ranks and returns the rows that those have sent here; so does
  // the backward. Without a capacity ranks exchange counts first.
  std::array<double, 2> formula_bytes() override {
    if (case_.ranks == 1) return {};
    const std::int64_t row_bytes = flags_.hidden * static_cast<std::int64_t>(core::size_of(flags_.dtype));
    std::int64_t moved = 0;
    for (int other = 0; other < case_.ranks; ++other) {
      if (other != index_) moved += rows(index_, other) + rows(other, index_);
    }
    const auto counts = static_cast<std::int64_t>(sizeof(std::int32_t)) * case_.experts * (case_.ranks - 1);
    const auto bytes = static_cast<double>(moved * row_bytes);
    return {bytes + static_cast<double>(capacity() == 0 ? counts : 0), bytes};
  }
  // Rows, dropped copies, and the experts' loads.
  std::vector<double> figures() override {
    std::int64_t dropped = 0;
    for (const std::int64_t load : loads_)
      dropped += capacity() == 0 ? 0 : std::max<std::int64_t>(0, load - capacity());
    std::vector<double> figures{static_cast<double>(rows_here()), static_cast<double>(dropped)};
    figures.insert(figures.end(), loads_.begin(), loads_.end());
    return figures;
  }

 private:
  void run_alone() {
    const LayerBlock block = block_of(flags_, case_, 1);
    on_one_rank(block, inputs_of(flags_, index_), flags_.threads,
                [&](LayerRank& alone, const parallel::Workspace& workspace) {
                  if (const std::vector<double> targets = case_.targets(); !targets.empty()) {
                    const std::vector<float> bias = fitted_bias(block, alone, targets, workspace);
                    alone.stage().set_router_bias(0, bias);
                    layer_.stage().set_router_bias(0, bias);
                  }
                  alone.run_alone();
                  y_ = alone.y();
                  dx_ = alone.dx();
                  alone.end(Mode::serial);
                  loads_ = alone.stage().loads().front();
                });
  }

  std::int64_t capacity() const { return workload::capacity_of(block_.model, flags_.tokens); }
  // Rows that a rank sends to the experts of another, or to its own.
  std::int64_t rows(int from, int to) const {
    const auto experts = static_cast<std::size_t>(case_.experts);
    const std::size_t experts_of_rank = experts / static_cast<std::size_t>(case_.ranks);
    const auto first = static_cast<std::size_t>(from) * experts + static_cast<std::size_t>(to) * experts_of_rank;
    if (capacity() > 0) return capacity() * static_cast<std::int64_t>(experts_of_rank);
    const std::span<const std::int64_t> of_pair = std::span(all_loads_).subspan(first, experts_of_rank);
    return std::accumulate(of_pair.begin(), of_pair.end(), std::int64_t{0});
  }
  std::int64_t rows_here() const {
    std::int64_t sum = 0;
    for (int from = 0; from < case_.ranks; ++from) sum += rows(from, index_);
    return sum;
  }

  const ExpertsFlags& flags_;
  const Case& case_;
  const int index_;
  std::vector<float> y_, dx_;
  std::vector<std::int64_t> loads_;      // tokens of this rank per expert, dropped ones included
  std::vector<std::int64_t> all_loads_;  // [rank][expert]
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

Result run_case(const ExpertsFlags& flags, const Case& bench_case) {
  const step_bench::PartRow row{.num_ranks = bench_case.ranks,
                                .tokens = flags.tokens * bench_case.ranks,
                                .modes = {Mode::serial, Mode::overlapped}};
  Result result;
  result.part = std::move(run_parts(flags, row, [&](PartSite& site) {
                            step_bench::Parts parts;
                            parts.push_back(std::make_unique<Mixture>(flags, bench_case, site));
                            return parts;
                          }).front());
  add_experts_times(result);
  const std::vector<std::vector<double>>& figures = result.part.figures;
  for (const std::vector<double>& of_rank : figures) {
    result.most_rows = std::max(result.most_rows, static_cast<std::int64_t>(of_rank[0]));
  }
  result.mean_rows = sum_of(figures, 0) / bench_case.ranks;
  result.dropped = static_cast<std::int64_t>(sum_of(figures, 1));
  result.copies = flags.tokens * bench_case.top_k * bench_case.ranks;
  for (std::size_t f = 2; f < figures.front().size(); ++f) {
    result.most_load = std::max(result.most_load, sum_of(figures, f));
  }
  result.most_load *= bench_case.experts / static_cast<double>(result.copies);
  return result;
}

}  // namespace lockstep::experts_bench
