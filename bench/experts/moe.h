// moe_bench: its flags, a rank of a mixture of experts, its rows.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/program/program.h"
#include "bench/tp_linear/pass.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "core/record.h"
#include "core/statistics.h"
#include "kernels/base/thread_pool.h"
#include "parallel/layers/mixture.h"
#include "parallel/memory/memory.h"

namespace lockstep::experts_bench {

// The command line of moe_bench.

struct ExpertsFlags : program::Invocation {
  std::vector<int> experts{8};
  std::vector<int> top_k{2};
  std::vector<int> ranks{1, 2, 4};
  std::vector<double> capacity{0};
  std::vector<double> skew{1};
  std::vector<double> loads;  // instead of a skew
  std::int64_t tokens = 512;  // per rank
  std::int64_t hidden = 256;
  std::int64_t inner = 1024;
  std::int64_t shared = 0;  // total width of the shared experts
  core::DType dtype = core::DType::f32;
  std::string algorithm = "auto";
  std::optional<transports::LinkSpec> link;
  int threads = 1;
  int rounds = 9;
  int warmup_rounds = 2;
  std::chrono::milliseconds timeout{60'000};
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ExpertsFlags parse_experts_flags(int argc, const char* const* argv);

struct Case {
  int experts = 8;
  int top_k = 2;
  int ranks = 1;
  double capacity_factor = 0;  // 0: dropless
  double skew = 1;             // rows of the first expert over an even share; 0: that of a random router
  std::vector<double> loads = {};

  // Shares of all copies that the router is to send to the experts; empty: no targets.
  std::vector<double> targets() const;
};
// Throws a usage Error if a case is impossible.
std::vector<Case> cases_of(const ExpertsFlags& flags);

// One rank of a mixture of experts: its tokens, its experts, and a forward and backward as lists of tasks.

enum class Part : std::uint8_t { router, permute, dispatch, shared, experts, combine, unpermute };
inline constexpr std::array kParts{"router", "permute", "dispatch", "shared", "experts", "combine", "unpermute"};
inline constexpr std::size_t kNumParts = kParts.size();
using PartTimes = std::array<double, kNumParts>;  // us

inline constexpr std::uint64_t kSeed = 1;

// The layer of a case on one of its ranks; with `alone` as if that rank had all experts.
class RankOfExperts {
 public:
  // `mesh` is unused with `alone`. Sends the other ranks its numbers of rows: all ranks construct theirs together.
  RankOfExperts(const ExpertsFlags& flags, const Case& one, int index, backends::MeshRank& mesh,
                kernels::ThreadPool& pool, bool alone);

  const tp_linear::Pass& forward() const { return passes_[0]; }
  const tp_linear::Pass& backward() const { return passes_[1]; }
  PartTimes take_times();  // since the last call

  std::vector<float> y() const { return host(y_); }
  std::vector<float> dx() const { return host(dx_); }
  std::int64_t rows_here() const { return layer_.rows_here(saved_); }
  std::int64_t dropped() const;       // copies of this rank's tokens, after a forward
  std::int64_t sent_bytes() const;    // in a forward and a backward: the copies for other ranks, four times, and counts
  std::vector<double> loads() const;  // tokens per expert

 private:
  struct Expert {
    parallel::Tensor weight, bias, d_weight, d_bias;
  };
  parallel::Tensor random(const std::string& name, std::int64_t count, float deviation);
  Expert expert(const std::string& name, std::int64_t outputs, std::int64_t inputs);
  static std::vector<parallel::LinearWeights> weights(const std::vector<Expert>& experts);
  static std::vector<parallel::LinearGradients> gradients(const std::vector<Expert>& experts);
  std::vector<float> host(const parallel::Tensor& tensor) const;

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
  void make_passes();

  const ExpertsFlags& flags_;
  const Case& case_;
  backends::MeshRank& mesh_;
  std::unique_ptr<core::Device> device_;
  parallel::Memory memory_;
  const kernels::Context where_;
  const parallel::Workspace workspace_;
  const parallel::MixtureLayer layer_;
  parallel::Tensor x_, dy_, router_, d_router_, bias_;
  std::vector<Expert> up_, down_, shared_;
  parallel::MixtureSaved saved_;
  parallel::MlpSaved shared_saved_;
  parallel::Tensor shared_y_, shared_dx_, y_, dx_;
  parallel::Tensor all_counts_, d_gates_, d_back_, d_out_, d_here_, d_sent_;
  std::map<std::vector<std::int64_t>, backends::Prepared> prepared_;  // by blocks
  std::array<tp_linear::Pass, 2> passes_;
  PartTimes times_{};
};

// Runs one case on its ranks: timed in every round, one part after the other and with exchanges overlapping the shared
// experts, and checked in every round.

enum class Way : std::uint8_t { serial, async };  // async: exchanges overlap with kernels that do not need them
inline constexpr std::size_t kNumWays = 2;

struct Result {
  // [way][direction], the slowest rank's time in each round, and its parts in the round of the median.
  std::array<std::array<std::vector<double>, 2>, kNumWays> samples_us = {};
  std::array<std::array<PartTimes, 2>, kNumWays> parts_us = {};
  // Time of the experts' own work, forward and backward, one after the other: medians over rounds.
  double experts_slowest_us = 0;  // on the slowest rank
  double experts_mean_us = 0;     // mean over ranks
  std::int64_t most_rows = 0;     // on the rank with most
  double mean_rows = 0;
  double most_load = 0;  // copies for the most loaded expert over an even share
  std::int64_t copies = 0;
  std::int64_t dropped = 0;        // copies, over all ranks
  std::int64_t sent_bytes = 0;     // by all ranks, forward and backward: counted in the plans that ran
  std::int64_t formula_bytes = 0;  // likewise, from the rows that each pair of ranks exchanges
  std::int64_t checked_passes = 0;
  // Energy of a forward and a backward with exchanges overlapping the shared experts. The text is one line, also
  // without a counter.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};
  std::int64_t wrong = 0;  // elements, over all ranks and rounds

  double median_us(Way way, int direction) const {
    return core::median(samples_us[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)]);
  }
  double median_us(Way way) const { return median_us(way, 0) + median_us(way, 1); }
  bool is_wrong() const { return wrong != 0 || sent_bytes != formula_bytes; }
};

Result run_case(const ExpertsFlags& flags, const Case& one);

}  // namespace lockstep::experts_bench
