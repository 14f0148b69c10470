// Looks up a rank's group of each kind.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

class GroupTable {
 public:
  explicit GroupTable(const Step& step);

  // Index in Step::groups; -1 if the rank has no group of that kind.
  std::int32_t find(std::int32_t rank, GroupKind kind) const;
  // Like find(), but throws a usage Error that names rank and kind if there is none. `who` needs the group: "recipe of
  // stage 3".
  std::int32_t of(std::int32_t rank, GroupKind kind, const std::string& who) const;

 private:
  std::vector<std::array<std::int32_t, kNumGroupKinds>> of_rank_;
};

}  // namespace lockstep::schedules
