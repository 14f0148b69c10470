// Schedules with all forwards before all backwards: GPipe (Huang et al. 2019), chunk by chunk (breadth-first,
// Lamy-Poirier 2022), and slice by slice (TeraPipe, Li et al. 2021).
#include "schedules/generators/rank_list.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

Schedule breadth_first(const PipelineShape& shape) {
  const std::int32_t units = shape.microbatches * shape.slices();
  Schedule made{.name = "breadth_first",
                .num_microbatches = units,
                .stages_per_pipe = shape.ranks * shape.chunks,
                .rank_of_stage = looped_placement(shape.ranks, shape.chunks),
                .of_rank = {},
                .slice_tokens = shape.slice_tokens};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
    RankList list(shape.ranks * shape.chunks, units, shape.slices());
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      while (list.forward(chunk * shape.ranks + rank)) {
      }
    }
    for (std::int32_t chunk = shape.chunks - 1; chunk >= 0; --chunk) {
      while (list.backward(chunk * shape.ranks + rank)) {
      }
    }
    made.of_rank.push_back(list.take());
  }
  return made;
}

Schedule gpipe(const PipelineShape& shape) {
  Schedule made = breadth_first(shape);
  made.name = "gpipe";
  return made;
}

Schedule terapipe(const PipelineShape& shape) {
  Schedule made = breadth_first(shape);
  made.name = "terapipe";
  return made;
}

}  // namespace lockstep::schedules
