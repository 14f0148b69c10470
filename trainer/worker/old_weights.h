// Which version of the weights a step's kernels read, by its schedule (schedules::Versions): the policy over the
// versions that a ParameterStore can hold.
//
//   PipeDream (Narayanan et al. 2019, section 3.3): a microbatch holds the weights that its forward begins with, until
//   its own update; the stage p-1-r stages before the last has then updated them p-1-r times.
//   PipeDream-2BW (Narayanan et al. 2021, section 3.1): all microbatches of a step read the weights of the step before,
//   and their gradient changes those of this one: w(t+1) = w(t) - rate gradient(w(t-1)), where w(-1) is w(0).
#pragma once

#include <cstdint>

#include "parallel/parameters/store.h"
#include "schedules/generators/catalogue.h"
#include "workload/groups.h"
#include "workload/layout.h"

namespace lockstep::trainer {

class OldWeights {
 public:
  explicit OldWeights(const workload::Layout& layout)
      : versions_(versions_of(layout)),
        updates_a_step_(workload::updates_every_microbatch(layout) ? layout.microbatches : 1) {}

  std::int64_t updates_a_step() const { return updates_a_step_; }  // per stage

  void begin_run(parallel::ParameterStore& store) const {
    if (versions_ != schedules::Versions::double_buffered) return;
    store.hold(kStepBefore);
    store.copy_held();  // so that the first step holds as much memory as all others
  }
  // Called before a kernel of a microbatch. Without `trains`, in a forward-only pass, kernels read the newest weights.
  void before_kernel(parallel::ParameterStore& store, std::int32_t microbatch, bool trains) const {
    if (versions_ == schedules::Versions::one) return;
    if (!trains) return store.read_newest();
    if (versions_ == schedules::Versions::double_buffered) return store.read_as(kStepBefore);
    if (!store.holds(microbatch)) store.hold(microbatch);
    store.read_as(microbatch);
  }
  // Called before the update at the end of a step.
  void before_update(parallel::ParameterStore& store) const {
    if (versions_ == schedules::Versions::double_buffered) store.hold(kStepBefore);
  }

 private:
  static constexpr std::int32_t kStepBefore = 0;  // the only reader of a step

  schedules::Versions versions_;
  std::int64_t updates_a_step_;
};

}  // namespace lockstep::trainer
