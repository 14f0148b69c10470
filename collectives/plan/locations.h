// Numbers the chunk-sized places of all ranks' memory. In place, an output chunk that coincides with an input chunk is
// one location under two names.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {

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

}  // namespace lockstep::plan
