// Where in a rank's list gradients become complete.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

inline bool gives_weight_gradients(const Task& task) {
  return task.lane == Lane::compute && (task.op == Op::backward || task.op == Op::weight_gradient);
}

enum class Completes : std::uint8_t {
  nothing,
  part,    // the gradients of a part for a microbatch
  action,  // of a whole stage
};

// Of each task of a rank. With `last_only` those of a stage's last microbatch count, no others.
std::vector<Completes> completed_gradients(const Step& step, const RankStep& rank, bool last_only);

}  // namespace lockstep::schedules
