// Work that no other task of the step waits for, put into a pipeline's bubbles, so that the step takes no longer:
// PipeFisher (Osawa et al. 2023, arXiv:2211.14133), whose work is K-FAC's. What does not fit into the bubbles of one
// step goes on in those of the next ones; when all is done, which takes several steps, it begins anew.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

struct FillerItem {
  Task task;  // a kernel of so many picoseconds in lane compute
  // A kernel of the rank's list in the first of the steps that has to have run; kNoKernel: none.
  std::uint32_t after_kernel = kNoKernel;
  std::vector<std::uint32_t> after_items = {};  // items that stand before this one in the rank's list of them

  static constexpr std::uint32_t kNoKernel = UINT32_MAX;
};

// `timeline`: when the tasks of the step run without fillers; the same in each step, and one step follows the other.
// `items`: for each rank, what is wanted first standing first. Returns the steps that do all items once, of which each
// rank's first bubbles are filled first. No bubble are times in which a collective of the rank runs, as that would
// slow a kernel down. Throws a usage Error if an item is longer than all bubbles of its rank.
std::vector<Step> fill_bubbles(const Step& step, const StepTimeline& timeline,
                               std::span<const std::vector<FillerItem>> items);

// Work of a second-order optimizer on one matrix of a stage, in picoseconds.
struct SecondOrderMatrix {
  std::int32_t part = -1;                // of the stage
  std::int64_t input_curvature_ps = 0;   // K-FAC's A, of what is multiplied by it: after each microbatch's forward,
                                         // an equal part after each of its slices' where it is cut
  std::int64_t output_curvature_ps = 0;  // K-FAC's B, of the product's gradient: after each backward
  std::int64_t input_inversion_ps = 0;   // once all microbatches of the step are in it
  std::int64_t output_inversion_ps = 0;
};

// The items of each rank: curvature before inversions, as PipeFisher's rules have it (section 3.1). `matrices`: of each
// stage. A task's `what` is twice the matrix's place in the stage's list, and one more for its output's factor.
std::vector<std::vector<FillerItem>> second_order_items(const Step& step,
                                                        std::span<const std::vector<SecondOrderMatrix>> matrices);

// Of each rank, idle time of the compute lane in which none of its collectives runs, in picoseconds.
std::vector<std::int64_t> bubble_ps_of_ranks(const Step& step, const StepTimeline& timeline);

}  // namespace lockstep::schedules
