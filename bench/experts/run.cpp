#include "bench/experts/run.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "bench/place/step_energy.h"
#include "collectives/plan/count.h"
#include "core/cores.h"
#include "core/dtype.h"
#include "core/wait.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::experts_bench {
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
    for (int turn = -flags_.warm_turns; turn < flags_.turns; ++turn) {
      for (std::size_t way = 0; way < kNumWays; ++way) run_way(way, turn >= 0);
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
      for (std::size_t d = 0; d < 2; ++d) result_.parts_us[way][d] = parts_[way][d][median_turn(way, d)];
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

  std::size_t median_turn(std::size_t way, std::size_t d) const {
    const std::vector<double>& times = result_.samples_us[way][d];
    std::vector<std::size_t> turns(times.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    const auto middle = turns.begin() + static_cast<std::ptrdiff_t>((turns.size() - 1) / 2);
    std::nth_element(turns.begin(), middle, turns.end(),
                     [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
    return *middle;
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
                                      .threads_a_rank = flags.threads + 1,
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
