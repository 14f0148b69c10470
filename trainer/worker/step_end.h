// The end of a rank's step, when all gradients are there: sums over further groups, their norm, the update. Whether a
// step counts, and by what its gradients are multiplied, is decided where they are: the host waits for nothing, and is
// told in the end.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/pinned_memory.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/optimizer/optimizer.h"
#include "parallel/memory/memory.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::trainer {

// How a step ends; the same on all ranks.
struct UpdateRules {
  parallel::AdamWOptions adamw;
  std::int64_t step = 1;   // from 1
  float most_norm = 0;     // gradients are scaled down to this norm; 0: never
  float loss_scale = 1;    // that gradients are multiplied by
  bool rehearses = false;  // what gradients are means nothing: weights stay as they are
};

class StepEnd {
 public:
  explicit StepEnd(RankModel& model) : model_(model), updates_(model.versions().updates_a_step()) {}

  // The values that begin_step() copies: the rate and what follows from the step's number. The rest of the rules are
  // constants of the work that is queued then. Nothing of a step before is queued any more.
  void give(const UpdateRules& rules);
  void begin_step();

  // A sum over a group of gradients that lie in several parameters: packed, to be all-reduced in place, and put back.
  // Kernels run in `where`, as the sum does.
  kernels::InOut pack(schedules::GroupKind kind, const kernels::Context& where);
  void unpack(schedules::GroupKind kind, const kernels::Context& where);

  // The sum of squares of what this rank alone counts, to be summed over all ranks in place: one f64.
  kernels::InOut own_square(const kernels::Context& where);

  // After that sum, in the order of kernels: takes the norm of all gradients, without the loss scale, and changes the
  // weights. In a step without the sum nothing is clipped or skipped.
  void update();
  // One bucket, in a step that updates each behind its gradients.
  void update_bucket(RankStage& stage, std::int32_t bucket);
  // In a step that updates a stage with each microbatch's gradients: with those of this one, counted from 0.
  void update(RankStage& stage, std::int32_t microbatch);
  // Where updates are delayed, update() takes what the first of these has made of the step before, if there was one.
  void delayed_update();  // in any thread, beside the step
  void settle();          // between steps: the last step's update, so that none is delayed
  void end_step();        // the norm is on its way to the host
  void take_results();    // when what was queued is done
  double norm() const { return norm_; }
  bool skipped() const { return skipped_; }  // gradients were not finite: nothing was changed

 private:
  void take_delayed();
  float gradient_scale() const { return rules_.rehearses ? 0 : 1 / rules_.loss_scale; }
  // The gradients that a group sums. A parameter of several stages of this rank is summed here first.
  struct Shared {
    std::vector<kernels::InOut> pieces;
    bool same = false;  // all pieces are one gradient
  };
  Shared shared_of(schedules::GroupKind kind);

  // Places of numbers_.
  static std::int64_t schedule_place(std::int64_t update) { return update * kernels::kAdamWSchedule; }
  std::int64_t factor_place() const { return schedule_place(updates_); }
  parallel::ParameterStore::UpdateOnDevice numbers_of(std::int64_t update) const;

  RankModel& model_;
  const std::int64_t updates_;  // of a stage in a step
  UpdateRules rules_;
  parallel::Tensor packed_;
  parallel::Tensor squares_;  // f64: the sum, then what each stage adds
  bool has_square_ = false;   // in this step
  parallel::Tensor numbers_;  // f32: kernels::AdamW's schedule of each update, the factor of gradients, their norm
  core::PinnedMemory given_;  // the schedules, and the factor in a step without a norm
  core::PinnedMemory taken_;  // the factor, the norm
  double norm_ = 0;
  bool skipped_ = false;
  // An update that is delayed.
  struct Delayed {
    parallel::AdamWOptions adamw;
    std::int64_t step = 0;
    float factor = 0;
  };
  std::optional<Delayed> delayed_;  // until it is made
  bool has_delayed_ = false;        // it is made, and not taken
};

}  // namespace lockstep::trainer
