// One rank of a mixture of experts: its tokens, its experts, and a forward and backward as lists of tasks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/experts/flags.h"
#include "bench/tp_linear/pass.h"
#include "collectives/backends/mesh.h"
#include "kernels/base/thread_pool.h"
#include "parallel/layers/mixture.h"
#include "parallel/memory/memory.h"

namespace lockstep::experts_bench {

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

}  // namespace lockstep::experts_bench
