// Parts of check(), in the order in which they run; each assumes that the earlier ones found nothing.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/locations.h"
#include "collectives/plan/messages.h"

namespace lockstep::plan {

// Collects problems; parts stop once it is full.
class Problems {
 public:
  void add(const StepPlace& where, std::string what) {
    if (!full()) list_.push_back({where, std::move(what)});
  }
  bool full() const { return list_.size() >= 8; }
  bool empty() const { return list_.empty(); }
  std::vector<Problem> take() { return std::move(list_); }

 private:
  std::vector<Problem> list_;
};

// Checks that numbers are in range: buffers, peers, `after`, counts that agree, operations that the collective has.
void check_shape(const Plan& plan, Problems& problems);
// Checks that every message has two ends of the same size.
void check_messages(const Plan& plan, const StepIds& ids, const Messages& messages, Problems& problems);
// Checks that steps of different lanes of a rank that access the same memory, one of them writing, are ordered by lanes
// and `after`.
void check_races(const Plan& plan, const StepIds& ids, const Locations& locations, Problems& problems);
// Runs the plan on symbols and compares the outputs. Fills `contents`.
void check_run(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
               const CheckOptions& options, Contents& contents, Problems& problems);

}  // namespace lockstep::plan
