#include "bench/tp_linear/tp_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/parallel/checks.h"
#include "bench/place/place.h"
#include "bench/serve/orders.h"
#include "bench/tp_linear/block.h"
#include "bench/tp_linear/grid_layer.h"
#include "bench/tp_linear/pass.h"
#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "core/error.h"
#include "core/ranks.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::tp_linear {
namespace {

using Visit = std::function<void(std::int64_t, std::int64_t, std::int64_t)>;

void for_each_run(const Result& result, workload::TensorRank place, const Visit& visit) {
  if (result.runs) return result.runs(visit);
  workload::for_each_run(result.whole, place, visit);
}

// Number of additions in the longest sum of a result, and of roundings to the dtype before it, on one rank.
struct Roundings {
  std::int64_t longest_sum;
  int on_the_way;
};
Roundings roundings_of(BlockKind kind, const Shape& shape) {
  const std::int64_t rows = shape.rows();
  switch (kind) {
    case BlockKind::column:
    case BlockKind::row:
      return {std::max(rows, shape.inner()), 1};
    case BlockKind::mlp:
      return {std::max(rows, shape.hidden + shape.inner()), 3};
    case BlockKind::attention:  // roundings of a score, of the weighted values, of the projection
      return {std::max(rows, 4 * shape.hidden + 2 * shape.length), 5};
    case BlockKind::embedding:
      return {rows, 1};
    default:  // a logit is larger than one, and its rounding counts that many times in its exponential
      return {shape.vocabulary + shape.hidden, 5};
  }
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

template <class Make>
Reference reference_by(int threads, const Make& make) {
  kernels::ThreadPool pool(threads);
  const kernels::Context where(pool);
  kernels::choose_gemms_by_rule(where);
  const auto device = core::make_cpu_device();
  parallel::Memory memory(*device);
  const parallel::Workspace workspace{memory, where};
  const std::unique_ptr<TimedBlock> block = make(workspace);
  block->reset();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const Task& task : block->pass(direction).tasks()) task.run();
  }
  Reference reference;
  for (const Result& result : block->results()) reference[result.whole.name] = host_values(memory, *result.found);
  return reference;
}

}  // namespace

Reference reference_of(BlockKind kind, const Shape& shape, int threads) {
  return reference_by(threads, [&](const parallel::Workspace& workspace) {
    return std::make_unique<Block>(kind, NodeContext{shape, {}, workspace});
  });
}

Reference grid_reference_of(BlockKind kind, const Shape& shape, int threads) {
  return reference_by(threads, [&](const parallel::Workspace& workspace) {
    return std::make_unique<GridLayer>(kind, GridSite{shape, {}, 0, workspace});
  });
}

double allowed_difference(BlockKind kind, const Shape& shape, int ranks) {
  const Roundings roundings = roundings_of(kind, shape);
  const int of_dtype = ranks + 2 * roundings.on_the_way;
  return core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(roundings.longest_sum)) +
         core::sum_tolerance(shape.dtype, static_cast<std::size_t>(of_dtype));
}

std::int64_t wrong_elems(const Result& result, workload::TensorRank place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed) {
  const double largest = largest_of(whole);
  std::int64_t wrong = 0;
  std::vector<bool> is_padding(found.size(), true);
  for_each_run(result, place, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      is_padding.at(static_cast<std::size_t>(to + i)) = false;
      const double wanted = static_cast<double>(whole.at(static_cast<std::size_t>(from + i)));
      const double is = static_cast<double>(found.at(static_cast<std::size_t>(to + i)));
      const double bound = allowed * (result.elementwise ? std::fabs(wanted) : largest);
      wrong += std::fabs(is - wanted) <= bound ? 0 : 1;  // written so that a NaN is wrong
    }
  });
  for (std::size_t i = 0; i < found.size(); ++i) wrong += is_padding[i] && found[i] != 0 ? 1 : 0;
  return wrong;
}

std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted) {
  LOCKSTEP_CHECK(found.size() == wanted.size(), "both have the same number of elements");
  std::int64_t unlike = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    unlike += std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]) ? 1 : 0;
  }
  return unlike;
}

namespace {

constexpr std::size_t kLayers = 0;  // the channel, or the first of several, which share a thread and a stream
constexpr std::array kDirections{Direction::forward, Direction::backward};
constexpr std::array kWays{Way::one_by_one, Way::beside, Way::kernels, Way::exchanges};
constexpr std::array kServed{std::pair{Way::one_by_one, "one by one"}, std::pair{Way::beside, "beside"}};

// The groups of several ranks along an axis.
std::vector<backends::Channel> groups_of(const workload::Grid& grid, std::size_t axis) {
  const auto which = static_cast<workload::GridAxis>(axis);
  if (workload::members_along(grid, which) == 1) return {};
  return workload::groups_along(grid, which);
}

// All ranks, or the groups of a grid's axes, axis by axis.
std::vector<backends::Channel> channels_of(const Case& one) {
  std::vector<backends::Channel> channels;
  if (!one.grid) {
    channels.emplace_back(static_cast<std::size_t>(one.ranks));
    std::iota(channels.front().begin(), channels.front().end(), 0);
    return channels;
  }
  for (std::size_t axis = 0; axis < workload::kNumGridAxes; ++axis) {
    for (backends::Channel& group : groups_of(*one.grid, axis)) channels.push_back(std::move(group));
  }
  return channels;
}

// The work of one rank's thread.
class RankRun {
 public:
  RankRun(const TpLinearFlags& flags, const Case& one, const Reference& reference, backends::MeshRank& rank,
          std::span<const backends::Channel> channels, const parallel_bench::SentCounter& counter)
      : flags_(flags),
        case_(one),
        channels_(channels),
        reference_(reference),
        rank_(rank),
        counter_(counter),
        index_(rank.messages.rank()),
        pool_(flags.threads),
        cuda_(rank.queues == nullptr ? nullptr
                                     : trainer::make_cuda_context(rank.device, *rank.queues->compute, index_)),
        where_(cuda_ ? kernels::Context(*cuda_) : kernels::Context(pool_)),
        memory_(rank.device),
        runner_(rank, kLayers,
                core::WaitPolicy::beside_work(one.ranks * (flags.threads + 1), core::usable_cores(), flags.timeout)) {
    kernels::choose_gemms_by_rule(where_);
    make_exchangers();
    for (const int tiles : case_.tiles) {
      const std::int64_t before = parallel::total_of(memory_.now());
      blocks_.push_back(make_block(tiles));
      forms_.push_back({.tiles = tiles, .memory_bytes = parallel::total_of(memory_.now()) - before});
    }
    rehearse();
    if (index_ != 0) return;
    for (std::size_t f = 0; f < forms_.size(); ++f) {
      energy_.emplace_back(program::open_energy(flags.place.device, flags.mpi, one.ranks));
    }
  }

  // The result is the same on all ranks, except for energy.
  std::vector<Form> run() {
    for (int round = -flags_.warmup_rounds; round < flags_.rounds; ++round) {
      for (std::size_t f = 0; f < forms_.size(); ++f) {
        for (const Way way : kWays) run_once(f, way, round >= 0);
      }
    }
    for (Form& form : forms_) {
      form.wrong = sum_over_ranks(form.wrong);
      form.unlike = sum_over_ranks(form.unlike);
      form.sent_bytes = sum_over_ranks(form.sent_bytes);
      form.forward_sent_bytes = sum_over_ranks(form.forward_sent_bytes);
      form.least_bytes = sum_over_ranks(form.least_bytes);
      form.memory_bytes = most_of_ranks(form.memory_bytes);
    }
    for (std::size_t f = 0; f < energy_.size(); ++f) {
      forms_[f].energy = energy_[f].record(flags_.shape.batch * flags_.shape.length);
      forms_[f].energy_text = energy_[f].text(flags_.shape.batch * flags_.shape.length);
    }
    return std::move(forms_);
  }

  void serve(serve::Orders* orders) {
    serve::serve_ranks(orders, rank_.messages, [&](std::size_t which, std::int64_t calls) {
      TimedBlock& block = *blocks_[which / kServed.size()];
      const Way way = kServed[which % kServed.size()].first;
      return serve::us_of_calls(calls, [&] {
        block.reset();
        for (const Direction direction : kDirections) runner_.run(block.pass(direction), way);
      });
    });
  }

 private:
  Sharing sharing(int tiles) const { return {case_.ranks, index_, case_.sequence_parallel, tiles}; }
  NodeContext context(int tiles) { return {flags_.shape, sharing(tiles), workspace_, exchangers_.front().get()}; }

  // Makes one for each channel of the case.
  void make_exchangers() {
    for (std::size_t channel = 0; channel < channels_.size(); ++channel) {
      const bool is_member = std::binary_search(channels_[channel].begin(), channels_[channel].end(), index_);
      exchangers_.push_back(is_member ? std::make_unique<Exchanger>(rank_, channel, flags_.algorithm) : nullptr);
    }
  }

  std::unique_ptr<TimedBlock> make_block(int tiles) {
    if (!case_.grid) return std::make_unique<Block>(case_.block, context(tiles));
    GridSite site{flags_.shape, *case_.grid, index_, workspace_};
    std::size_t channel = 0;
    for (std::size_t axis = 0; axis < workload::kNumGridAxes; ++axis) {
      for (const auto& group : groups_of(*case_.grid, axis)) {
        static_cast<void>(group);
        if (exchangers_[channel]) site.exchangers[axis] = exchangers_[channel].get();
        ++channel;
      }
    }
    return std::make_unique<GridLayer>(case_.block, site);
  }

  // With queued work, new kernels wait for the device on their first run: no collective may be queued then.
  void rehearse() {
    if (rank_.queues == nullptr) return;
    for (const auto& block : blocks_) {
      for (const Direction direction : kDirections) runner_.run(block->pass(direction), Way::kernels);
    }
    rank_.messages.barrier();
  }

  void run_once(std::size_t f, Way way, bool counts) {
    TimedBlock& block = *blocks_[f];
    // Kernels or exchanges alone work on data that the previous pass has left.
    const bool is_whole = way == Way::one_by_one || way == Way::beside;
    if (is_whole) block.reset();
    const parallel_bench::SentCounter::Bytes before = counter_.so_far();
    std::array<std::int64_t, 2> sent_by = {};
    const bool draws = counts && way == Way::beside && !energy_.empty();  // the energy of these runs counts
    for (const Direction direction : kDirections) {
      if (draws) energy_[f].begin_step();
      const Timed slowest = timed(block.pass(direction), way);
      if (draws) energy_[f].end_step(direction == Direction::backward ? 1 : 0);
      sent_by[static_cast<std::size_t>(direction)] = counter_.so_far().sent - before.sent;
      if (counts) forms_[f].times.add(way, direction, slowest.us, slowest.spent);
    }
    if (!is_whole) return;
    const parallel_bench::SentCounter::Bytes after = counter_.so_far();
    forms_[f].forward_sent_bytes += sent_by[static_cast<std::size_t>(Direction::forward)];
    check(f, {after.sent - before.sent, after.least - before.least});
  }

  struct Timed {
    double us;
    Spent spent;
  };
  // Times of the slowest rank.
  Timed timed(const Pass& pass, Way way) {
    rank_.messages.barrier();
    const auto start = core::Clock::now();
    Timed mine{0, runner_.run(pass, way)};
    mine.us = core::us_between(start, core::Clock::now());
    // All time outside of kernels is communication, including the wait for concurrent exchanges and their start.
    if (way != Way::kernels) mine.spent.back() = mine.us - mine.spent[0] - mine.spent[1];
    const std::vector<Timed> all = transports::all_gather_value(rank_.messages, mine);
    return *std::max_element(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
  }

  template <class Number>
  Number sum_over_ranks(Number mine) {
    const auto all = transports::all_gather_value(rank_.messages, mine);
    return std::accumulate(all.begin(), all.end(), Number{0});
  }

  std::int64_t most_of_ranks(std::int64_t mine) {
    const auto all = transports::all_gather_value(rank_.messages, mine);
    return *std::max_element(all.begin(), all.end());
  }

  void check(std::size_t f, const parallel_bench::SentCounter::Bytes& bytes) {
    Form& form = forms_[f];
    form.sent_bytes += bytes.sent;
    form.least_bytes += bytes.least;
    ++form.checked_passes;
    const double allowed = allowed_difference(case_.block, flags_.shape, case_.ranks);
    const auto results = blocks_[f]->results();
    const bool is_first = first_.empty();
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::vector<float> found = host_values(memory_, *results[i].found);
      if (results[i].in_tiles) found = out_of_tiles(context(form.tiles).tiles(), found);
      form.wrong +=
          wrong_elems(results[i], {case_.ranks, index_}, found, reference_.at(results[i].whole.name), allowed);
      if (is_first) {
        first_.push_back(std::move(found));
      } else {
        form.unlike += unlike_elems(found, first_[i]);
      }
    }
  }

  const TpLinearFlags& flags_;
  const Case& case_;
  const std::span<const backends::Channel> channels_;
  const Reference& reference_;
  backends::MeshRank& rank_;
  const parallel_bench::SentCounter& counter_;
  const int index_;
  kernels::ThreadPool pool_;
  const std::shared_ptr<kernels::CudaContext> cuda_;  // if work is queued
  kernels::Context where_;
  parallel::Memory memory_;
  parallel::Workspace workspace_{memory_, where_};
  std::vector<std::unique_ptr<Exchanger>> exchangers_;  // [channel]; nullptr if the rank is not a member
  std::vector<Form> forms_;
  std::vector<std::unique_ptr<TimedBlock>> blocks_;  // [form]
  std::vector<std::vector<float>> first_;            // results of the first pass, with one tile
  std::vector<program::StepEnergy> energy_;          // [form] on rank 0
  PassRunner runner_;                                // destroyed first
};

// Calls body(run, index) on all ranks of this process.
void on_ranks(const TpLinearFlags& flags, const Case& one, const Reference& reference,
              const std::function<void(RankRun&, int index)>& body) {
  const std::vector<backends::Channel> channels = channels_of(one);
  const backends::MeshOptions options{.num_ranks = one.ranks,
                                      .threads_per_rank = flags.threads + 1,
                                      .link = flags.link,
                                      .timeout = flags.timeout,
                                      .mpi = flags.mpi,
                                      .device = flags.place.device,
                                      .queue_of_channel = std::vector<int>(channels.size(), 0)};
  backends::run_mesh(options, channels, [&](backends::MeshRank& rank) {
    parallel_bench::SentCounter counter(channels);
    backends::MeshRank counted = counter.counting(rank);
    RankRun run(flags, one, reference, counted, channels, counter);
    body(run, rank.messages.rank());
  });
}

// "mlp/f32/B4_T128_C256/tp 2, sequence-parallel/tiles:4/beside", in the order of RankRun::serve().
std::vector<std::string> served_names(const TpLinearFlags& flags, const Case& one) {
  const Shape& shape = flags.shape;
  const std::string shared = one.grid ? "grid " + workload::text_of(*one.grid) : "tp " + std::to_string(one.ranks);
  std::vector<std::string> names;
  for (const int tiles : one.tiles) {
    for (const auto& [way, name] : kServed) {
      names.push_back(fmt::format("{}/{}/B{}_T{}_C{}/{}{}/tiles:{}/threads:{}/{}", name_of(one.block),
                                  core::short_name_of(shape.dtype), shape.batch, shape.length, shape.hidden, shared,
                                  one.sequence_parallel ? ", sequence-parallel" : "", tiles, flags.threads, name));
    }
  }
  return names;
}

}  // namespace

bool Form::is_wrong() const {
  return wrong != 0 || !parallel_bench::sent_as_formula(static_cast<double>(sent_bytes), least_bytes,
                                                        static_cast<double>(formula_bytes));
}

void serve_case(const TpLinearFlags& flags, const Case& one) {
  const std::vector<std::string> names = served_names(flags, one);
  const Reference none;
  on_ranks(flags, one, none, [&](RankRun& run, int index) {
    std::optional<serve::Orders> orders;
    if (index == 0) orders.emplace(flags.program, names);
    run.serve(orders ? &*orders : nullptr);
  });
}

std::vector<Form> run_case(const TpLinearFlags& flags, const Case& one, const Reference& reference) {
  const int reporting_rank = flags.mpi == nullptr ? 0 : flags.mpi->placement().rank;
  std::vector<Form> forms;
  on_ranks(flags, one, reference, [&](RankRun& run, int index) {
    std::vector<Form> of_rank = run.run();
    if (index == reporting_rank) forms = std::move(of_rank);
  });
  for (Form& form : forms) {
    const Sharing sharing{one.ranks, 0, one.sequence_parallel, form.tiles};
    form.formula_bytes = form.checked_passes * (one.grid ? grid_formula_bytes_of_all(one.block, flags.shape, *one.grid)
                                                         : formula_bytes_of_all(one.block, flags.shape, sharing));
  }
  return forms;
}

}  // namespace lockstep::tp_linear
