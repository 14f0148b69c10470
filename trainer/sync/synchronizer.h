// Synchronization of replicas that step by themselves.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/backends/mesh.h"
#include "kernels/base/view.h"
#include "trainer/sync/sync_options.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/step_end.h"

namespace lockstep::trainer {

// An optimizer step from summed gradients that lie in a rank's stores, outside of a Step.

// Sum of squares of the gradients that this rank counts (workload::counts_in_norm). CPU only.
double square_of_gradients(RankModel& model);

// Clips gradients of this norm to rules.most_norm and updates the weights, with the same bits as StepEnd's update.
void update_from_gradients(RankModel& model, const UpdateRules& rules, double norm);

// The outer optimizer of DiLoCo: SGD with Nesterov momentum on the mean change of the replicas' weights.

struct OuterRules {
  float rate = 0.7F;
  float momentum = 0.9F;
};

// With `change` = start - mean of the replicas' weights, the outer gradient (Douillard et al. 2023, arXiv:2311.08105,
// algorithm 1), and torch.optim.SGD's Nesterov:
//
//   velocity = momentum velocity + change;   weights = start - rate (change + momentum velocity);   start = weights
//
// `change_sum` is the sum over `replicas`. All spans are as long; `weights` may be `change_sum`.
void outer_step(const OuterRules& rules, std::int32_t replicas, std::span<const float> change_sum,
                std::span<float> start, std::span<float> velocity, std::span<float> weights);

// Collectives among the ranks that have the same part of the model in every replica, on a channel of their own; their
// bytes are counted.

class Peers {
 public:
  // `channel` of the mesh contains `ranks`, one per replica in order. `algorithm`: of all-reduces, as a user writes it.
  // The mesh must outlive this.
  Peers(backends::MeshRank& mesh, std::size_t channel, std::span<const std::int32_t> ranks, std::string algorithm);

  int count() const { return count_; }
  int own() const { return own_; }  // replica of this rank

  // In place, on all peers or at the root; all peers make the same calls in the same order. Sums are in the view's
  // dtype.
  void all_reduce(const kernels::InOut& data);
  void reduce(int root, const kernels::InOut& data);
  void broadcast(int root, const kernels::InOut& data);

  std::int64_t sent_bytes() const { return sent_bytes_; }  // by this rank since the start, from the plans

 private:
  void run(collectives::Kind kind, int root, const kernels::InOut& data, std::string_view algorithm);

  struct Kept {
    backends::Prepared prepared;
    std::int64_t sent_bytes = 0;
  };
  backends::MeshRank& mesh_;
  const std::size_t channel_;
  const int count_;
  const int own_;
  const std::string algorithm_;
  std::map<std::tuple<collectives::Kind, int, std::int64_t, core::DType>, Kept> kept_;
  std::int64_t sent_bytes_ = 0;
};

// Makes independent replicas agree: the work after a replica's own step, on one of its ranks.

class Synchronizer {
 public:
  // The arguments must outlive this. All ranks construct theirs together. Replicas start with the same weights.
  Synchronizer(const SyncOptions& options, RankModel& model, Peers peers);

  // Call it after step `rules.step` of `steps` of every replica, which has updated itself (average, diloco) or not, so
  // that its gradients are still there (server, root). After the last step weights are the same on all replicas in
  // every mode. All ranks call it together.
  void after_step(const UpdateRules& rules, std::int64_t steps);

  // For summed gradients: their norm before clipping, and whether it was not finite, so that nothing was changed.
  double norm() const { return norm_; }
  bool skipped() const { return skipped_; }
  std::int64_t sent_bytes() const { return peers_.sent_bytes(); }  // by this rank since the start

 private:
  // A bucket of one of the rank's stages.
  struct Bucket {
    RankStage* stage = nullptr;
    std::int32_t index = 0;
    parallel::Tensor start;     // diloco: weights of the last agreement
    parallel::Tensor velocity;  // diloco
    kernels::InOut masters() const { return stage->store->own_masters(index); }
  };

  void average();
  void outer_steps();
  void sum_gradients();
  void update(const UpdateRules& rules);
  double norm_of_sums();

  const SyncOptions& options_;
  RankModel& model_;
  Peers peers_;
  std::vector<Bucket> buckets_;
  double norm_ = 0;
  bool skipped_ = false;
};

}  // namespace lockstep::trainer
