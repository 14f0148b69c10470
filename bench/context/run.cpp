#include "bench/context/seqpar.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench/step/values.h"
#include "core/dtype.h"
#include "parallel/parameters/device_memory.h"
#include "workload/context_layer.h"

namespace lockstep::context_bench {
namespace {

using parallel::ContextLayer;
using step_bench::Exchanger;
using step_bench::kNothing;
using step_bench::PartSite;
using step_bench::Pass;
using step_bench::TaskKind;
using workload::ExchangePosition;
using workload::OperationKind;

parallel::Tensor tensor_of(parallel::Memory& memory, const std::vector<float>& values, core::DType dtype) {
  parallel::Tensor tensor = memory.make(parallel::MemoryKind::buffers, dtype, static_cast<std::int64_t>(values.size()));
  parallel::write_rounded(memory.device(), tensor.out(), values);
  return tensor;
}

// The attention of one rank.
class ContextPart final : public step_bench::PassPart {
 public:
  ContextPart(const ContextLayer& layer, const Whole& whole, PartSite& site)
      : PassPart(site.runner),
        layer_(with_rank(layer, site.index())),
        whole_(whole),
        site_(site),
        plan_(layer_),
        qkv_(tensor_of(site.memory, rows_of(layer_, whole.qkv), layer_.dtype)),
        d_o_(tensor_of(site.memory, rows_of(layer_, whole.d_o), layer_.dtype)),
        d_qkv_(site.memory.make(parallel::MemoryKind::buffers, layer_.dtype, qkv_.elems())),
        attention_(parallel::make_context_attention(plan_, site.workspace)),
        exchanger_(site.rank, 0, "auto"),
        operations_(operations_of(layer_)),
        pieces_{pieces_of(operations_, false), pieces_of(operations_, true)},
        piece_us_{std::vector<std::vector<double>>(pieces_[0].size()),
                  std::vector<std::vector<double>>(pieces_[1].size())} {
    for (const bool backward : {false, true}) {
      whole_passes_.push_back(pass_of(backward, true));
      kernel_passes_.push_back(pass_of(backward, false));
      exchange_passes_.push_back(exchanges_of(backward));
    }
  }

  const Pass& pass(Mode mode, Direction direction) const override {
    const auto& passes = is_whole(mode) ? whole_passes_ : mode == Mode::kernels ? kernel_passes_ : exchange_passes_;
    return passes[static_cast<std::size_t>(direction)];
  }

  void begin(Mode mode) override {
    if (is_whole(mode)) site_.memory.restart_peaks();
  }
  void end(Mode mode) override {
    if (is_whole(mode)) {
      const auto activations = static_cast<std::size_t>(parallel::MemoryKind::activations);
      peak_bytes_ = std::max(peak_bytes_, site_.memory.at_peak()[activations]);
    }
    if (mode != Mode::exchanges) attention_->give_up_output();
  }

  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    const bool backward = direction == Direction::backward;
    const std::vector<float> found =
        step_bench::host_values(site_.memory.device(), backward ? d_qkv_.in() : attention_->output());
    findings.add_difference(difference(layer_, found, backward ? whole_.d_qkv : whole_.o));
  }

  // At the peak, without the input and the output's gradient.
  std::int64_t memory_bytes() const override { return peak_bytes_; }
  std::array<double, 2> formula_bytes() override {
    const workload::ContextBytes listed = workload::bytes_sent(plan_.list(), layer_);
    return {static_cast<double>(listed.forward), static_cast<double>(listed.backward)};
  }
  // For the simulator: median times of the pieces of the forward and the backward, of kernels alone.
  std::vector<double> figures() override {
    std::vector<double> medians;
    for (const auto& pieces : piece_us_) {
      for (const std::vector<double>& us : pieces) medians.push_back(us.empty() ? 0 : core::median(us));
    }
    return medians;
  }

 private:
  static ContextLayer with_rank(ContextLayer layer, std::int32_t rank) {
    layer.rank = rank;
    return layer;
  }

  // Without messages the exchanges use whatever is in memory, and kernels are timed one by one.
  Pass pass_of(bool backward, bool moves) {
    Pass pass;
    const int before = backward ? 1 : 0;  // tasks before the first piece
    if (backward) pass.add(TaskKind::other_kernel, [this] { attention_->begin_backward(d_o_.in()); });
    const std::vector<Piece>& pieces = pieces_[backward ? 1 : 0];
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const OperationKind kind = pieces[i].op->kind;
      const std::uint16_t turn = pieces[i].op->turn;
      if (pieces[i].is_exchange) {
        const schedules::Comm comm = (backward ? pieces[i].op->backward_exchange : pieces[i].op->forward_exchange).comm;
        const ExchangePosition place = ExchangePosition::of_number(turn);
        pass.add(
            moves ? TaskKind::exchange : TaskKind::other_kernel, [=, this] { exchange(comm, backward, place, moves); },
            pieces[i].after + before);
        continue;
      }
      const bool is_core = kind != OperationKind::split_heads && kind != OperationKind::merge_context;
      pass.add(
          is_core ? TaskKind::product : TaskKind::other_kernel,
          [=, this] {
            const auto start = core::Clock::now();
            kernel(kind, turn, backward);
            if (!moves) piece_us_[backward ? 1 : 0][i].push_back(core::us_between(start, core::Clock::now()));
          },
          pieces[i].after < 0 ? kNothing : pieces[i].after + before);
    }
    return pass;
  }

  // Only exchanges, on permanently allocated memory.
  Pass exchanges_of(bool backward) {
    Pass pass;
    for (std::int32_t i = 0; i < plan_.list().turns(); ++i) {
      const std::int32_t turn = backward ? plan_.list().turns() - 1 - i : i;
      for (const ExchangePosition& place : workload::places_of(plan_.turn(backward, turn), turn)) {
        const workload::ContextExchange& exchange = plan_.exchange(backward, place);
        const bool whole_in = exchange.comm == schedules::Comm::reduce_scatter;
        const bool whole_out = exchange.comm == schedules::Comm::all_gather;
        const std::int64_t ranks = layer_.shape.ranks;
        const auto buffer = [&](workload::ContextArray array, bool whole) -> const parallel::Tensor& {
          buffers_.push_back(site_.memory.make_zeroed(parallel::MemoryKind::buffers, layer_.dtype_of(array),
                                                      layer_.elems(array) * (whole ? ranks : 1)));
          return buffers_.back();
        };
        const parallel::ContextMove move{buffer(exchange.array, whole_in).in(),
                                         buffer(exchange.received, whole_out).out(),
                                         plan_.bytes_of_pairs(backward, place)};
        const collectives::Operation operation = operation_of(exchange.comm, move, layer_.shape.ranks);
        pass.add(TaskKind::exchange, exchanger_.make(operation, move.input.data, move.output.data));
      }
    }
    return pass;
  }

  void exchange(schedules::Comm comm, bool backward, const ExchangePosition& place, bool moves) {
    const parallel::ContextMove move = attention_->exchange(backward, place);
    if (moves) exchanger_.run(operation_of(comm, move, layer_.shape.ranks), move.input.data, move.output.data);
    attention_->exchanged(backward, place);
  }

  void kernel(OperationKind kind, std::uint16_t turn, bool backward) {
    if (kind == OperationKind::split_heads) {
      if (backward) return attention_->join(d_qkv_.out());
      return attention_->split(qkv_.in());
    }
    if (kind == OperationKind::merge_context) {
      return backward ? attention_->merge_gradients(turn) : attention_->merge(turn);
    }
    return backward ? attention_->core_gradient(turn) : attention_->core(turn);
  }

  const ContextLayer layer_;
  const Whole& whole_;
  PartSite& site_;
  const parallel::ContextPlan plan_;
  const parallel::Tensor qkv_, d_o_, d_qkv_;
  std::vector<parallel::Tensor> buffers_;
  std::unique_ptr<parallel::ContextAttention> attention_;
  Exchanger exchanger_;
  const std::vector<workload::Operation> operations_;
  const std::array<std::vector<Piece>, 2> pieces_;                    // [direction]
  std::array<std::vector<std::vector<double>>, 2> piece_us_;          // [direction][piece], kernels alone
  std::vector<Pass> whole_passes_, kernel_passes_, exchange_passes_;  // [direction]
  std::int64_t peak_bytes_ = 0;
};

// Time with the link minus time with one that takes no time.
std::array<double, 2> simulated_exposed_us(const ContextLayer& layer, const step_bench::PartResult& part,
                                           const transports::LinkSpec& link) {
  const std::vector<workload::Operation> operations = operations_of(layer);
  std::array<double, 2> exposed_us = {};
  std::ptrdiff_t begin = 0;
  for (const bool backward : {false, true}) {
    const std::vector<Piece> pieces = pieces_of(operations, backward);
    const std::ptrdiff_t end = begin + std::ssize(pieces);
    std::vector<std::vector<double>> of_rank;
    for (const std::vector<double>& us : part.figures) of_rank.emplace_back(us.begin() + begin, us.begin() + end);
    exposed_us[backward ? 1 : 0] =
        simulated_us(layer, pieces, backward, of_rank, link) - simulated_us(layer, pieces, backward, of_rank, {});
    begin = end;
  }
  return exposed_us;
}

}  // namespace

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
      return fmt::format("{:.0f} bytes sent {}, but the list has {:.0f}", sent,
                         direction == Direction::forward ? "forward" : "backward", listed);
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
