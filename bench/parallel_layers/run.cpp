#include "bench/parallel_layers/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/exchanger.h"
#include "bench/parallel_layers/formulas.h"
#include "bench/parallel_layers/row_order.h"
#include "bench/parallel_layers/values.h"
#include "bench/serve/calls.h"
#include "bench/serve/serve_ranks.h"
#include "collectives/backends/mesh.h"
#include "core/cores.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::layer_bench {
namespace {

constexpr std::size_t kLayers = 0;  // the channel
constexpr std::array kWays{Way::one_by_one, Way::beside, Way::kernels, Way::exchanges};
constexpr std::array kServed{std::pair{Way::one_by_one, "one by one"}, std::pair{Way::beside, "beside"}};

// What one rank's thread does.
class RankRun {
 public:
  RankRun(const LayerFlags& flags, const Case& one, const Reference& reference, backends::MeshRank& rank, int index)
      : flags_(flags),
        case_(one),
        reference_(reference),
        index_(index),
        pool_(flags.threads),
        memory_(rank.device),
        exchanger_(rank, kLayers, index, flags.algorithm),
        messages_(rank.messages),
        runner_(index, rank.abort,
                core::WaitPolicy::beside_work(one.ranks * (flags.threads + 1), core::usable_cores(), flags.timeout)) {
    kernels::choose_gemms_by_rule(where_);
    for (const int tiles : case_.tiles) {
      forms_.push_back({.tiles = tiles});
      blocks_.push_back(make_block(case_.block, place(tiles)));
    }
  }

  std::vector<Form> run() {
    for (int turn = -flags_.warm_turns; turn < flags_.turns; ++turn) {
      for (std::size_t f = 0; f < forms_.size(); ++f) {
        for (const Way way : kWays) run_once(f, way, turn >= 0);
      }
    }
    return std::move(forms_);
  }

  void serve(serve::Orders* orders) {
    serve::serve_ranks(orders, messages_, [&](std::size_t which, std::int64_t calls) {
      Block& block = *blocks_[which / kServed.size()];
      const Way way = kServed[which % kServed.size()].first;
      return serve::us_of_calls(calls, [&] {
        block.reset();
        runner_.run(block.forward(), way);
        runner_.run(block.backward(), way);
      });
    });
  }

 private:
  Sharing sharing(int tiles) const { return {case_.ranks, index_, case_.sequence_parallel, tiles}; }
  Place place(int tiles) { return {flags_.shape, sharing(tiles), workspace_, &exchanger_}; }

  void run_once(std::size_t f, Way way, bool counts) {
    Block& block = *blocks_[f];
    // One kind alone works on what the pass before has left.
    const bool is_whole = way == Way::one_by_one || way == Way::beside;
    if (is_whole) block.reset();
    const std::int64_t sent_before = exchanger_.sent_bytes();
    const std::array times{timed(block.forward(), way), timed(block.backward(), way)};
    for (std::size_t d = 0; d < times.size() && counts; ++d) {
      forms_[f].samples_us[static_cast<std::size_t>(way)][d].push_back(times[d].us);
      forms_[f].spent_us[static_cast<std::size_t>(way)][d].push_back(times[d].spent);
    }
    if (is_whole) check(f, exchanger_.sent_bytes() - sent_before);
  }

  struct Timed {
    double us;
    Spent spent;
  };
  Timed timed(const Pass& pass, Way way) {
    messages_.barrier();
    const auto start = core::Clock::now();
    Timed timed{0, runner_.run(pass, way)};
    timed.us = core::us_between(start, core::Clock::now());
    // What is not a kernel is communication: waits for what runs beside, too, and starting it.
    if (way != Way::kernels) timed.spent.back() = timed.us - timed.spent[0] - timed.spent[1];
    return timed;
  }

  void check(std::size_t f, std::int64_t sent_bytes) {
    Form& form = forms_[f];
    form.sent_bytes += sent_bytes;
    ++form.checked_passes;
    const double allowed = allowed_difference(case_.block, flags_.shape, case_.ranks);
    const auto results = blocks_[f]->results();
    const bool is_first = first_.empty();
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::vector<float> found = host_values(memory_, *results[i].found);
      if (results[i].in_tiles) found = out_of_tiles(place(form.tiles).tiles(), found);
      form.wrong +=
          wrong_elems(results[i], {case_.ranks, index_}, found, reference_.at(results[i].whole.name), allowed);
      if (is_first) {
        first_.push_back(std::move(found));
      } else {
        form.unlike += unlike_elems(found, first_[i]);
      }
    }
  }

  const LayerFlags& flags_;
  const Case& case_;
  const Reference& reference_;
  int index_;
  kernels::ThreadPool pool_;
  kernels::Context where_{pool_};
  parallel::Memory memory_;
  parallel::Workspace workspace_{memory_, where_};
  Exchanger exchanger_;
  transports::Transport& messages_;
  std::vector<Form> forms_;
  std::vector<std::unique_ptr<Block>> blocks_;  // [form]
  std::vector<std::vector<float>> first_;       // results of the first pass, in one tile
  PassRunner runner_;                           // goes first
};

void merge(Form& all, const Form& rank) {
  all.wrong += rank.wrong;
  all.unlike += rank.unlike;
  all.sent_bytes += rank.sent_bytes;
  for (std::size_t w = 0; w < all.samples_us.size(); ++w) {
    for (std::size_t d = 0; d < all.samples_us[w].size(); ++d) {
      for (std::size_t turn = 0; turn < all.samples_us[w][d].size(); ++turn) {
        if (rank.samples_us[w][d][turn] <= all.samples_us[w][d][turn]) continue;
        all.samples_us[w][d][turn] = rank.samples_us[w][d][turn];
        all.spent_us[w][d][turn] = rank.spent_us[w][d][turn];
      }
    }
  }
}

// Calls body(run, index) on all ranks.
void on_ranks(const LayerFlags& flags, const Case& one, const Reference& reference,
              const std::function<void(RankRun&, int index)>& body) {
  backends::Channel members;
  for (int r = 0; r < one.ranks; ++r) members.push_back(r);
  const std::array channels{members};
  const backends::MeshOptions options{
      .num_ranks = one.ranks, .threads_a_rank = flags.threads + 1, .link = flags.link, .timeout = flags.timeout};
  backends::run_mesh(options, channels, [&](backends::MeshRank& rank) {
    const int index = rank.messages.rank();
    RankRun run(flags, one, reference, rank, index);
    body(run, index);
  });
}

// "mlp/f32/B4_T128_C256/tp 2, sequence-parallel/tiles:4/beside", as RankRun::serve() counts.
std::vector<std::string> served_names(const LayerFlags& flags, const Case& one) {
  const Shape& shape = flags.shape;
  std::vector<std::string> names;
  for (const int tiles : one.tiles) {
    for (const auto& [way, name] : kServed) {
      names.push_back(fmt::format("{}/{}/B{}_T{}_C{}/tp {}{}/tiles:{}/threads:{}/{}", name_of(one.block),
                                  core::short_name_of(shape.dtype), shape.batch, shape.length, shape.hidden, one.ranks,
                                  one.sequence_parallel ? ", sequence-parallel" : "", tiles, flags.threads, name));
    }
  }
  return names;
}

}  // namespace

std::vector<double> Form::exposed(Way way, Direction direction) const {
  std::vector<double> differences = samples(way, direction);
  const std::vector<double>& kernels = samples(Way::kernels, direction);
  std::transform(differences.begin(), differences.end(), kernels.begin(), differences.begin(),
                 [](double both, double alone) { return both - alone; });
  return differences;
}

const Spent& Form::median_spent(Way way, Direction direction) const {
  const std::vector<double>& times = samples(way, direction);
  std::vector<std::size_t> turns(times.size());
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  const auto middle = turns.begin() + static_cast<std::ptrdiff_t>((turns.size() - 1) / 2);
  std::nth_element(turns.begin(), middle, turns.end(),
                   [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
  return spent_us[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)][*middle];
}

void serve_case(const LayerFlags& flags, const Case& one) {
  const std::vector<std::string> names = served_names(flags, one);
  const Reference none;
  on_ranks(flags, one, none, [&](RankRun& run, int index) {
    std::optional<serve::Orders> orders;
    if (index == 0) orders.emplace(flags.program, names);
    run.serve(orders ? &*orders : nullptr);
  });
}

std::vector<Form> run_case(const LayerFlags& flags, const Case& one, const Reference& reference) {
  std::vector<std::vector<Form>> of_ranks(static_cast<std::size_t>(one.ranks));
  on_ranks(flags, one, reference,
           [&](RankRun& run, int index) { of_ranks[static_cast<std::size_t>(index)] = run.run(); });
  std::vector<Form> all = std::move(of_ranks.front());
  for (std::size_t f = 0; f < all.size(); ++f) {
    for (std::size_t r = 1; r < of_ranks.size(); ++r) merge(all[f], of_ranks[r][f]);
    const Sharing sharing{one.ranks, 0, one.sequence_parallel, all[f].tiles};
    all[f].formula_bytes = all[f].checked_passes * formula_bytes_of_all(one.block, flags.shape, sharing);
  }
  return all;
}

}  // namespace lockstep::layer_bench
