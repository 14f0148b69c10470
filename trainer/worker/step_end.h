// The end of a rank's step, when all gradients are complete: sums over further groups, their norm, the update. Whether
// a step counts, and the factor of its gradients, are decided on the device: the host does not wait and reads the
// results at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/optimizer/optimizer.h"
#include "parallel/memory/memory.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::trainer {

// Rules of the update at the end of a step, the same on all ranks.
struct UpdateRules {
  kernels::OptimizerNumbers optimizer;
  std::int64_t step = 1;   // from 1
  float most_norm = 0;     // gradients are clipped to this norm; 0: never
  float loss_scale = 1;    // factor of the loss, and so of the gradients
  bool rehearses = false;  // gradients are meaningless: weights do not change
};

class StepEnd {
 public:
  explicit StepEnd(RankModel& model) : model_(model), updates_(model.versions().updates_per_step()) {}

  // Sets the values that begin_step() copies: the learning rate and the numbers that depend on the step. The other
  // rules are constants of the work queued after this. No work of an earlier step may still be queued.
  void give(const UpdateRules& rules);
  void begin_step();

  // A group's sum of gradients that lie in several parameters: packs them for an in-place all-reduce and puts the
  // result back. Kernels run in `where`, as does the sum.
  kernels::InOut pack(schedules::GroupKind kind, const kernels::Context& where);
  void unpack(schedules::GroupKind kind, const kernels::Context& where);

  // Sum of squares over the elements that only this rank counts, to be all-reduced in place: one f64.
  kernels::InOut own_square(const kernels::Context& where);

  // After that sum, in the order of kernels: computes the norm of all gradients, without the loss scale, and updates
  // the weights. A step without the sum neither clips nor skips.
  void update();
  // Updates one bucket, in a step that updates each bucket after its reduction.
  void update_bucket(RankStage& stage, std::int32_t bucket);
  // Updates a stage with the gradients of one microbatch, counted from 0, in a step that updates after each.
  void update(RankStage& stage, std::int32_t microbatch);
  // With delayed updates, update() applies the results that delayed_update() has computed from the previous step.
  void delayed_update();  // in any thread, concurrently with the step
  void settle();          // between steps: makes the last step's update, so that none is pending
  void end_step();        // starts the copy of the norm to the host
  void take_results();    // after queued work is done
  double norm() const { return norm_; }
  bool skipped() const { return skipped_; }  // gradients were not finite: nothing was changed

 private:
  void take_delayed();
  float gradient_scale() const { return rules_.rehearses ? 0 : 1 / rules_.loss_scale; }
  // The gradients that a group sums. A parameter that several stages of this rank have is first summed here.
  struct Shared {
    std::vector<kernels::InOut> pieces;
    bool same = false;  // all pieces are the same gradient
  };
  Shared shared_of(schedules::GroupKind kind);

  // Index in numbers_.
  static std::int64_t schedule_place(std::int64_t update) { return update * kernels::kOptimizerSchedule; }
  std::int64_t factor_place() const { return schedule_place(updates_); }
  parallel::ParameterStore::UpdateOnDevice numbers_of(std::int64_t update) const;

  RankModel& model_;
  const std::int64_t updates_;  // per stage and step
  UpdateRules rules_;
  parallel::Tensor packed_;
  parallel::Tensor squares_;  // f64: the sum, then the summands of each stage
  bool has_square_ = false;   // in this step
  parallel::Tensor numbers_;  // f32: the schedule of each update, the factor of gradients, their norm
  core::PinnedMemory given_;  // the schedules, and the factor in a step without a norm
  core::PinnedMemory taken_;  // the factor and the norm
  double norm_ = 0;
  bool skipped_ = false;
  // A delayed update.
  struct Delayed {
    kernels::OptimizerNumbers optimizer;
    std::int64_t step = 0;
    float factor = 0;
  };
  std::optional<Delayed> delayed_;  // until it is made
  bool has_delayed_ = false;        // it is made but not applied yet
};

}  // namespace lockstep::trainer
