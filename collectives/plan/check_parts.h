// The parts of check(), and the locations of memory that they refer to.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {

// Numbers the chunk-sized places of all ranks' memory. In place, an output chunk that coincides with an input chunk is
// one location under two names.
class Locations {
 public:
  Locations(const Plan& plan, bool in_place);

  int size() const { return static_cast<int>(output_chunk_.size()); }
  int begin(int rank) const { return ranks_[at(rank)].begin; }  // a rank's locations are consecutive
  int end(int rank) const { return rank + 1 < static_cast<int>(ranks_.size()) ? begin(rank + 1) : size(); }

  // Location of chunk i of a slice that lies inside its buffer.
  int of(int rank, const Slice& slice, int i) const {
    const Rank& r = ranks_[at(rank)];
    switch (slice.buffer) {
      case Buffer::input:
        return r.begin + slice.first + i;
      case Buffer::output:
        return r.output[at(slice.first + i)];
      case Buffer::scratch:
        break;
    }
    return r.scratch_begin + slice.first + i;
  }
  // The output chunk at a location; -1: none.
  int output_chunk(int location) const { return output_chunk_[at(location)]; }

 private:
  struct Rank {
    int begin = 0;  // the input's first location
    int scratch_begin = 0;
    std::vector<int> output;  // [output chunk]
  };
  std::vector<Rank> ranks_;
  std::vector<int> output_chunk_;  // [location]
};

// Parts of check(), in the order in which they run; each assumes that the earlier ones found nothing.

// Collects problems; parts stop once it is full.
class Problems {
 public:
  void add(const StepIndex& where, std::string what) {
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
// Checks that steps of different lanes of a rank that access the same memory, at least one writing, are ordered by
// lanes and `after`.
void check_races(const Plan& plan, const StepIds& ids, const Locations& locations, Problems& problems);
// Runs the plan on symbols and compares the outputs. Fills `contents`.
void check_run(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
               const CheckOptions& options, Contents& contents, Problems& problems);

}  // namespace lockstep::plan
