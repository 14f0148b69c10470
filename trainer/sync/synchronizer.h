// Makes independent replicas agree: the work after a replica's own step, on one of its ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/sync/peers.h"
#include "trainer/sync/sync_options.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/step_end.h"

namespace lockstep::trainer {

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
