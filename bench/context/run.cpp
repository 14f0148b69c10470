#include "bench/context/seqpar.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench/parallel/checks.h"
#include "bench/place/place.h"
#include "collectives/backends/mesh.h"
#include "core/dtype.h"
#include "core/ranks.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "trainer/train/rank_steps.h"
#include "workload/context_layer.h"

namespace lockstep::context_bench {
namespace {

using parallel::ContextLayer;
using tp_linear::kNothing;
using tp_linear::Pass;
using tp_linear::PassRunner;
using tp_linear::TaskKind;
using workload::ExchangePosition;
using workload::OperationKind;

constexpr std::size_t kContext = 0;  // the channel
constexpr std::array kDirections{Direction::forward, Direction::backward};
constexpr std::array kForms{Form::one_by_one, Form::beside, Form::kernels, Form::exchanges};

parallel::Tensor tensor_of(parallel::Memory& memory, const std::vector<float>& values, core::DType dtype) {
  parallel::Tensor tensor = memory.make(parallel::MemoryKind::buffers, dtype, static_cast<std::int64_t>(values.size()));
  std::vector<core::BFloat16> narrow;
  const void* from = values.data();
  if (dtype != core::DType::f32) {
    for (const float value : values) narrow.push_back(core::to_bfloat16(value));
    from = narrow.data();
  }
  memory.device().copy_to_device(tensor.data(), from, static_cast<std::size_t>(tensor.bytes()));
  return tensor;
}

std::vector<float> values_of(parallel::Memory& memory, kernels::In view) {
  const auto elems = static_cast<std::size_t>(view.elems);
  std::vector<float> values(elems);
  if (view.dtype == core::DType::f32) {
    memory.device().copy_to_host(values.data(), view.data, elems * sizeof(float));
    return values;
  }
  std::vector<core::BFloat16> narrow(elems);
  memory.device().copy_to_host(narrow.data(), view.data, elems * sizeof(core::BFloat16));
  std::transform(narrow.begin(), narrow.end(), values.begin(),
                 [](core::BFloat16 value) { return core::to_float(value); });
  return values;
}

// The work of one rank's thread.
class RankRun {
 public:
  RankRun(const ContextFlags& flags, ContextLayer layer, const Whole& whole, backends::MeshRank& rank,
          const parallel_bench::SentCounter& counter)
      : flags_(flags),
        layer_(with_rank(layer, rank.messages.rank())),
        whole_(whole),
        rank_(rank),
        counter_(counter),
        pool_(flags.threads),
        cuda_(rank.queues == nullptr
                  ? nullptr
                  : trainer::make_cuda_context(rank.device, *rank.queues->compute, rank.messages.rank())),
        where_(cuda_ ? kernels::Context(*cuda_) : kernels::Context(pool_)),
        memory_(rank.device),
        plan_(layer_),
        qkv_(tensor_of(memory_, rows_of(layer_, whole.qkv), layer_.dtype)),
        d_o_(tensor_of(memory_, rows_of(layer_, whole.d_o), layer_.dtype)),
        d_qkv_(memory_.make(parallel::MemoryKind::buffers, layer_.dtype, qkv_.elems())),
        attention_(parallel::make_context_attention(plan_, workspace_)),
        exchanges_(rank, kContext, layer_.shape.ranks),
        operations_(operations_of(layer_)),
        pieces_{pieces_of(operations_, false), pieces_of(operations_, true)},
        piece_us_{std::vector<std::vector<double>>(pieces_[0].size()),
                  std::vector<std::vector<double>>(pieces_[1].size())},
        runner_(rank, kContext,
                core::WaitPolicy::beside_work(layer_.shape.ranks * (flags.threads + 1), core::usable_cores(),
                                              flags.timeout)) {
    for (const Direction direction : kDirections) {
      const bool backward = direction == Direction::backward;
      whole_passes_.push_back(pass_of(backward, true));
      kernel_passes_.push_back(pass_of(backward, false));
      exchange_passes_.push_back(exchanges_of(backward));
    }
  }

  // The result is the same on all ranks.
  Result run() {
    if (rank_.messages.rank() == 0) {
      energy_.emplace(program::open_energy(flags_.place.device, flags_.mpi, layer_.shape.ranks));
    }
    for (int round = -flags_.warmup_rounds; round < flags_.rounds; ++round) {
      for (const Form form : kForms) run_once(form, round >= 0);
    }
    if (energy_) {
      result_.energy = energy_->record(layer_.batch * layer_.length);
      result_.energy_text = energy_->text(layer_.batch * layer_.length);
    }
    result_.allowed_difference = allowed_difference(layer_);
    result_.worst_difference = largest(result_.worst_difference);
    result_.kernels_us = transports::all_gather_value(rank_.messages, core::median(own_kernels_us_));
    for (const bool backward : {false, true}) {
      const auto d = static_cast<std::size_t>(backward);
      result_.sent_bytes[d] = largest(result_.sent_bytes[d] / static_cast<double>(result_.checked_passes));
      const workload::ContextBytes listed = workload::bytes_sent(plan_.list(), layer_);
      result_.listed_bytes[d] = largest(backward ? listed.backward : listed.forward);
      if (flags_.link) result_.simulated_exposed_us[d] = simulated_exposed_us(backward);
    }
    result_.peak_bytes = static_cast<std::int64_t>(largest(static_cast<double>(result_.peak_bytes)));
    return std::move(result_);
  }

 private:
  static ContextLayer with_rank(ContextLayer layer, std::int32_t rank) {
    layer.rank = rank;
    return layer;
  }

  double largest(double mine) {
    const std::vector<double> all = transports::all_gather_value(rank_.messages, mine);
    const bool has_nan = std::any_of(all.begin(), all.end(), [](double value) { return value != value; });
    return has_nan ? std::numeric_limits<double>::quiet_NaN() : *std::max_element(all.begin(), all.end());
  }

  // Time with the link minus time with one that takes no time.
  double simulated_exposed_us(bool backward) {
    const std::vector<Piece>& pieces = pieces_[backward ? 1 : 0];
    std::vector<std::vector<double>> of_rank(static_cast<std::size_t>(layer_.shape.ranks));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<double>& mine = piece_us_[backward ? 1 : 0][i];
      const auto all = transports::all_gather_value(rank_.messages, mine.empty() ? 0.0 : core::median(mine));
      for (std::size_t r = 0; r < all.size(); ++r) of_rank[r].push_back(all[r]);
    }
    return simulated_us(layer_, pieces, backward, of_rank, *flags_.link) -
           simulated_us(layer_, pieces, backward, of_rank, {});
  }

  // ---- passes

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
          buffers_.push_back(memory_.make_zeroed(parallel::MemoryKind::buffers, layer_.dtype_of(array),
                                                 layer_.elems(array) * (whole ? ranks : 1)));
          return buffers_.back();
        };
        const parallel::ContextMove move{buffer(exchange.array, whole_in).in(),
                                         buffer(exchange.received, whole_out).out(),
                                         plan_.bytes_of_pairs(backward, place)};
        exchanges_.prepare(exchange.comm, move);
        pass.add(TaskKind::exchange, [this, comm = exchange.comm, move] { exchanges_.run(comm, move); });
      }
    }
    return pass;
  }

  void exchange(schedules::Comm comm, bool backward, const ExchangePosition& place, bool moves) {
    const parallel::ContextMove move = attention_->exchange(backward, place);
    if (moves) exchanges_.run(comm, move);
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

  // ---- rounds

  void run_once(Form form, bool counts) {
    const bool is_whole = form == Form::one_by_one || form == Form::beside;
    auto& passes = is_whole ? whole_passes_ : form == Form::kernels ? kernel_passes_ : exchange_passes_;
    if (is_whole) memory_.restart_peaks();
    double kernels_us = 0;
    for (const Direction direction : kDirections) {
      const auto d = static_cast<std::size_t>(direction);
      const auto before = counter_.so_far();
      const bool draws = counts && form == Form::beside && energy_;  // the energy of these runs counts
      if (draws) energy_->begin_step();
      const Timed mine = timed(passes[d], form == Form::beside ? Form::beside : Form::one_by_one);
      if (draws) energy_->end_step(direction == Direction::backward ? 1 : 0);
      kernels_us += mine.us;
      const std::vector<Timed> all = transports::all_gather_value(rank_.messages, mine);
      const Timed slowest =
          *std::max_element(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
      if (counts) result_.times.add(form, direction, slowest.us, slowest.spent);
      if (is_whole) check(direction, counts, counter_.so_far().sent - before.sent);
    }
    if (form == Form::kernels && counts) own_kernels_us_.push_back(kernels_us);
    if (is_whole) result_.peak_bytes = std::max(result_.peak_bytes, own_bytes(memory_.at_peak()));
    if (form != Form::exchanges) attention_->give_up_output();
  }

  std::int64_t own_bytes(const parallel::BytesByKind& held) const {
    return held[static_cast<std::size_t>(parallel::MemoryKind::activations)];
  }

  struct Timed {
    double us;
    Spent spent;
  };
  Timed timed(const Pass& pass, Form form) {
    rank_.messages.barrier();
    const auto start = core::Clock::now();
    Timed mine{0, runner_.run(pass, form)};
    mine.us = core::us_between(start, core::Clock::now());
    if (form == Form::beside) mine.spent.back() = mine.us - mine.spent[0] - mine.spent[1];
    return mine;
  }

  void check(Direction direction, bool counts, std::int64_t sent_bytes) {
    const bool backward = direction == Direction::backward;
    rank_.settle();
    const std::vector<float> found = values_of(memory_, backward ? d_qkv_.in() : attention_->output());
    const double worst = difference(layer_, found, backward ? whole_.d_qkv : whole_.o);
    if (!(worst <= result_.worst_difference)) result_.worst_difference = worst;
    if (!counts) return;
    result_.sent_bytes[static_cast<std::size_t>(direction)] += static_cast<double>(sent_bytes);
    if (backward) ++result_.checked_passes;
  }

  const ContextFlags& flags_;
  const ContextLayer layer_;
  const Whole& whole_;
  backends::MeshRank& rank_;
  const parallel_bench::SentCounter& counter_;
  kernels::ThreadPool pool_;
  const std::shared_ptr<kernels::CudaContext> cuda_;  // if work is queued
  const kernels::Context where_;
  parallel::Memory memory_;
  const parallel::Workspace workspace_{memory_, where_};
  const parallel::ContextPlan plan_;
  const parallel::Tensor qkv_, d_o_, d_qkv_;
  std::vector<parallel::Tensor> buffers_;
  std::unique_ptr<parallel::ContextAttention> attention_;
  Exchanges exchanges_;
  const std::vector<workload::Operation> operations_;
  const std::array<std::vector<Piece>, 2> pieces_;                    // [direction]
  std::array<std::vector<std::vector<double>>, 2> piece_us_;          // [direction][piece], kernels alone
  std::vector<Pass> whole_passes_, kernel_passes_, exchange_passes_;  // [direction]
  std::vector<double> own_kernels_us_;
  std::optional<program::StepEnergy> energy_;  // on rank 0
  Result result_;
  PassRunner runner_;  // destroyed first
};

}  // namespace

core::Estimate Result::hidden() const {
  std::vector<std::vector<double>> rounds(2,
                                          std::vector<double>(times.samples(Form::exchanges, kDirections[0]).size()));
  for (const Direction direction : kDirections) {
    const std::vector<double> exposed = times.exposed(Form::beside, direction);
    for (std::size_t i = 0; i < exposed.size(); ++i) {
      rounds[0][i] += exposed[i];
      rounds[1][i] += times.samples(Form::exchanges, direction)[i];
    }
  }
  return core::estimate(rounds, [](auto medians) { return medians[1] > 0 ? 1 - medians[0] / medians[1] : 1; })
      .within(0, 1);
}

double Result::simulated_hidden() const {
  const double alone_us = times.median_us(Form::exchanges);
  return alone_us > 0 ? std::clamp(1 - (simulated_exposed_us[0] + simulated_exposed_us[1]) / alone_us, 0.0, 1.0) : 1;
}

double Result::load() const {
  const double mean =
      std::accumulate(kernels_us.begin(), kernels_us.end(), 0.0) / static_cast<double>(kernels_us.size());
  return *std::max_element(kernels_us.begin(), kernels_us.end()) / mean;
}

std::string Result::wrong() const {
  if (!(worst_difference <= allowed_difference)) {
    return fmt::format("a result differs from one rank's by {:.2g} of the largest element; allowed: {:.2g}",
                       worst_difference, allowed_difference);
  }
  for (std::size_t d = 0; d < 2; ++d) {
    if (std::fabs(sent_bytes[d] - listed_bytes[d]) > 0.5) {
      return fmt::format("{:.0f} bytes sent {}, but the list has {:.0f}", sent_bytes[d],
                         d == 0 ? "forward" : "backward", listed_bytes[d]);
    }
  }
  return "";
}

Result run_layer(const ContextFlags& flags, const ContextLayer& layer, const Whole& whole) {
  backends::Channel members;
  for (int r = 0; r < layer.shape.ranks; ++r) members.push_back(r);
  const std::array channels{members};
  const backends::MeshOptions options{.num_ranks = layer.shape.ranks,
                                      .threads_per_rank = flags.threads + 1,
                                      .link = flags.link,
                                      .timeout = flags.timeout,
                                      .mpi = flags.mpi,
                                      .device = flags.place.device,
                                      .queue_of_channel = {0}};
  Result result;
  backends::run_mesh(options, channels, [&](backends::MeshRank& rank) {
    parallel_bench::SentCounter counter(channels);
    backends::MeshRank counted = counter.counting(rank);
    RankRun run(flags, layer, whole, counted, counter);
    Result found = run.run();
    if (rank.messages.rank() == 0 || flags.mpi != nullptr) result = std::move(found);
  });
  return result;
}

}  // namespace lockstep::context_bench
