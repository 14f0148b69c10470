#include "bench/seqpar_bench/seqpar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bench/step/layer_part.h"
#include "bench/step/values.h"
#include "core/dtype.h"
#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"
#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::context_bench {
namespace {

using parallel::ContextLayer;
using step_bench::PartSite;

// The core of attention: from fused queries, keys and values to the projection's input.
step_bench::LayerBlock block_of(const ContextLayer& layer) {
  step_bench::LayerBlock block;
  workload::Model& model = block.model;
  model.layers = 1;
  model.heads = layer.heads;
  model.kv_heads = layer.kv_heads;
  model.head_size = layer.head_columns;
  model.hidden = layer.query_columns();
  model.sequence = layer.length;
  model.ffn_hidden = 1;  // the MLP does not run
  model.dropout = false;
  block.layout.cp = layer.shape.ranks;
  block.layout.cp_way = layer.shape.way;
  block.layout.compute = layer.dtype;
  block.layout.microbatch_size = layer.batch;
  block.block = trainer::GptStage::Block::core;
  block.causal = layer.shape.causal;
  return block;
}

constexpr double kPsPerUs = 1e6;
constexpr double kNoLimit = 1e9;  // GB/s

simulator::Machine machine_of(const transports::LinkSpec& link) {
  simulator::Machine machine;
  machine.levels = {
      {.name = "link", .ranks = 1 << 20, .gbps = link.gbps > 0 ? link.gbps : kNoLimit, .latency_us = link.latency_us}};
  return machine;
}

std::int64_t ps(double us) {
  return std::llround(us * kPsPerUs);
}

// The simulator's prediction of a direction with overlapped exchanges: microseconds from the start to the end of the
// last rank. kernel_us: [rank][task of the block's step], kernels as measured; exchanges take the times of the
// simulator's link formulas.
double simulated_us(const ContextLayer& layer, Direction direction, const std::vector<std::vector<double>>& kernel_us,
                    const transports::LinkSpec& link) {
  schedules::Step step = step_bench::step_of(block_of(layer));
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::vector<schedules::Task>& tasks = step.of_rank[r].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].comm == schedules::Comm::none) tasks[i].amount = ps(kernel_us[r][i]);
    }
  }
  schedules::leave_out(step, [direction](const schedules::Task& task) {
    const bool is_forward = workload::piece_named(task.what).side == workload::Side::forward;
    return is_forward != (direction == Direction::forward);
  });
  const simulator::Machine machine = machine_of(link);
  const std::vector<std::int64_t> members{layer.shape.ranks};
  const auto time_of = [&](const schedules::Group&, const schedules::Task& task) {
    return ps(best_collective(machine, task.comm, static_cast<double>(task.amount), members).time_us());
  };
  const simulator::OneSwitch nothing_sent(layer.shape.ranks, 0);
  return static_cast<double>(simulate(step, nothing_sent, time_of).makespan_ps) / kPsPerUs;
}

using Values = std::vector<float>;

Values drawn(const char* name, std::int64_t count, core::DType dtype) {
  Values values = step_bench::random_rows(name, count);
  for (float& value : values) {
    if (dtype != core::DType::f32) value = core::to_float(core::to_bfloat16(value));
  }
  return values;
}

// Rows of the rank's tokens, in their order.
Values rows_of(const ContextLayer& layer, const Values& all) {
  const std::int64_t columns = static_cast<std::int64_t>(all.size()) / (layer.batch * layer.length);
  Values own;
  own.reserve(all.size() / static_cast<std::size_t>(layer.shape.ranks));
  for (std::int64_t b = 0; b < layer.batch; ++b) {
    for (const std::int32_t chunk : workload::chunks_of(layer.shape, layer.rank)) {
      const auto first = all.begin() + (b * layer.length + chunk * layer.chunk()) * columns;
      own.insert(own.end(), first, first + layer.chunk() * columns);
    }
  }
  return own;
}

// The largest difference of the rank's rows from the whole result, relative to its largest element; NaN if there is
// one.
double difference(const ContextLayer& layer, const Values& found, const Values& all) {
  const Values wanted = rows_of(layer, all);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
    if (std::isnan(error)) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, error);
  }
  return worst / step_bench::largest_of(all);
}

// Its bound: 1e-5 in f32; otherwise from the roundings to the dtype (parallel/context/context_attention.h).
double allowed_difference(const ContextLayer& layer) {
  if (layer.dtype == core::DType::f32) return 1e-5;
  constexpr double kUnit = 0x1p-9;  // half a unit in the last place of bf16
  // One rounding for each term and each sum, and for attention's own factors.
  return 2 * (layer.shape.ranks + 4) * kUnit;
}

ContextLayer with_rank(ContextLayer layer, std::int32_t rank) {
  layer.rank = rank;
  return layer;
}

// The attention of one rank.
class ContextPart final : public step_bench::LayerPart {
 public:
  ContextPart(const ContextLayer& layer, const Whole& whole, PartSite& site)
      : ContextPart(with_rank(layer, site.index()), site, whole) {}

  void begin(Mode mode) override {
    LayerPart::begin(mode);
    if (is_whole(mode)) site_.memory.restart_peaks();
  }
  void end(Mode mode) override {
    if (is_whole(mode)) {
      const auto activations = static_cast<std::size_t>(parallel::MemoryKind::activations);
      peak_bytes_ = std::max(peak_bytes_, site_.memory.at_peak()[activations]);
    }
    LayerPart::end(mode);
  }

  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    const bool backward = direction == Direction::backward;
    findings.add_difference(difference(rank_, backward ? layer_.dx() : layer_.y(), backward ? whole_.d_qkv : whole_.o));
  }

  // At the peak, without the input, the output's gradient and the input's.
  std::int64_t memory_bytes() const override { return peak_bytes_; }
  std::array<double, 2> formula_bytes() override {
    const workload::ContextBytes listed = workload::bytes_sent(workload::context_list(rank_.shape), rank_);
    return {static_cast<double>(listed.forward), static_cast<double>(listed.backward)};
  }
  std::vector<double> figures() override { return layer_.kernel_us(); }  // for the simulator

 private:
  ContextPart(const ContextLayer& rank, PartSite& site, const Whole& whole)
      : LayerPart(site, block_of(rank), "auto", {rows_of(rank, whole.qkv), rows_of(rank, whole.d_o)}),
        rank_(rank),
        whole_(whole),
        site_(site) {}

  const ContextLayer rank_;
  const Whole& whole_;
  PartSite& site_;
  std::int64_t peak_bytes_ = 0;
};

// Time with the link minus time with one that takes no time.
std::array<double, 2> simulated_exposed_us(const ContextLayer& layer, const step_bench::PartResult& part,
                                           const transports::LinkSpec& link) {
  std::array<double, 2> exposed_us = {};
  for (const Direction direction : step_bench::kDirections) {
    exposed_us[static_cast<std::size_t>(direction)] =
        simulated_us(layer, direction, part.figures, link) - simulated_us(layer, direction, part.figures, {});
  }
  return exposed_us;
}

}  // namespace

Whole reference_of(const ContextLayer& layer, int threads) {
  const std::int64_t rows = layer.batch * layer.length;
  Whole whole{.qkv = drawn("qkv", rows * layer.fused_columns(), layer.dtype),
              .d_o = drawn("d_o", rows * layer.query_columns(), layer.dtype)};
  ContextLayer alone = layer;
  alone.shape.ranks = 1;
  alone.dtype = core::DType::f32;
  step_bench::on_one_rank(block_of(alone), {whole.qkv, whole.d_o}, threads,
                          [&](step_bench::LayerRank& rank, const parallel::Workspace& /*workspace*/) {
                            rank.run_alone();
                            whole.o = rank.y();
                            whole.d_qkv = rank.dx();
                          });
  return whole;
}

std::vector<double> Result::kernels_us() const {
  const auto rounds = part.times.of_ranks(Mode::kernels);
  std::vector<double> medians;
  for (std::size_t r = 0; r < part.ranks.size(); ++r) {
    std::vector<double> us;
    for (const auto& of_rank : rounds) us.push_back(of_rank[r].us);
    medians.push_back(core::median(us));
  }
  return medians;
}

core::Estimate Result::hidden() const {
  std::vector<std::vector<double>> rounds{part.times.both(Mode::overlapped), part.times.both(Mode::exchanges)};
  const std::vector<double> kernels = part.times.both(Mode::kernels);
  for (std::size_t i = 0; i < kernels.size(); ++i) rounds[0][i] -= kernels[i];
  return core::estimate(rounds, [](auto medians) { return medians[1] > 0 ? 1 - medians[0] / medians[1] : 1; })
      .within(0, 1);
}

double Result::simulated_hidden() const {
  const double alone_us = part.times.median_us(Mode::exchanges);
  return alone_us > 0 ? std::clamp(1 - (simulated_exposed_us[0] + simulated_exposed_us[1]) / alone_us, 0.0, 1.0) : 1;
}

double Result::load() const {
  const std::vector<double> us = kernels_us();
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  return *std::max_element(us.begin(), us.end()) / mean;
}

std::string Result::wrong() const {
  if (!(part.worst() <= allowed_difference)) {
    return fmt::format("a result differs from one rank's by {:.2g} of the largest element; allowed: {:.2g}",
                       part.worst(), allowed_difference);
  }
  for (const Direction direction : step_bench::kDirections) {
    const double sent = part.most_sent_bytes(direction);
    const double listed = part.most_formula_bytes(direction);
    if (std::fabs(sent - listed) > 0.5) {
      return fmt::format("{:.0f} bytes sent {}, but the list has {:.0f}", sent, name_of(direction), listed);
    }
  }
  return "";
}

Result run_layer(const ContextFlags& flags, const ContextLayer& layer, const Whole& whole) {
  const step_bench::PartRow row{.num_ranks = layer.shape.ranks, .tokens = layer.batch * layer.length};
  Result result{.allowed_difference = allowed_difference(layer)};
  result.part = std::move(run_parts(flags, row, [&](PartSite& site) {
                            step_bench::Parts parts;
                            parts.push_back(std::make_unique<ContextPart>(layer, whole, site));
                            return parts;
                          }).front());
  if (flags.link) result.simulated_exposed_us = simulated_exposed_us(layer, result.part, *flags.link);
  return result;
}

}  // namespace lockstep::context_bench
