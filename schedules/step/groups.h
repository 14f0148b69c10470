// Which group of each kind a rank is in.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

class GroupTable {
 public:
  explicit GroupTable(const Step& step);

  // Index in Step::groups; -1: the rank is in none of the kind.
  std::int32_t find(std::int32_t rank, GroupKind kind) const;
  // Throws a usage Error that names rank and kind if there is none. `who` needs it: "recipe of stage 3".
  std::int32_t of(std::int32_t rank, GroupKind kind, const std::string& who) const;

 private:
  std::vector<std::array<std::int32_t, kNumGroupKinds>> of_rank_;
};

}  // namespace lockstep::schedules
