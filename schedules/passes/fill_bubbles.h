// Fills a pipeline's bubbles with work that no other task of the step waits for, so that the step takes no longer:
// PipeFisher (Osawa et al. 2023, arXiv:2211.14133), whose work is K-FAC's. Work that does not fit into the bubbles of
// one step continues in the following steps; after several steps, when all of it is done, it starts again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

struct FillerItem {
  Task task;  // a kernel in lane compute; `amount` is its time in picoseconds
  // Index of a kernel of the rank, in the first of the steps, that has to run before; kNoKernel: none.
  std::uint32_t after_kernel = kNoKernel;
  std::vector<std::uint32_t> after_items = {};  // items, earlier in the rank's list, that have to run before

  static constexpr std::uint32_t kNoKernel = UINT32_MAX;
};

// `timeline`: when the step's tasks run without fillers, the same in each of the consecutive steps. `items`: the items
// of each rank, most urgent first. Returns the steps that do all items once; each rank's earliest bubbles are filled
// first. Times in which a collective of the rank runs are not bubbles, as it would slow a kernel down. Throws a usage
// Error if an item is longer than every bubble of its rank.
std::vector<Step> fill_bubbles(const Step& step, const StepTimeline& timeline,
                               std::span<const std::vector<FillerItem>> items);

// Work of a second-order optimizer on one matrix of a stage, in picoseconds.
struct SecondOrderMatrix {
  std::int32_t part = -1;               // part of the stage
  std::int64_t input_curvature_ps = 0;  // K-FAC's A, of the layer's input: after each microbatch's forward, or an equal
                                        // share after the forward of each slice
  std::int64_t output_curvature_ps = 0;  // K-FAC's B, of the gradient of the layer's output: after each backward
  std::int64_t input_inversion_ps = 0;   // after all microbatches of the step
  std::int64_t output_inversion_ps = 0;
};

// The items of each rank by PipeFisher's rules (section 3.1): curvature before inversions. `matrices`: one list per
// stage. A task's `what` is twice the matrix's index in the stage's list, plus one for the output's factor.
std::vector<std::vector<FillerItem>> second_order_items(const Step& step,
                                                        std::span<const std::vector<SecondOrderMatrix>> matrices);

// Idle time of each rank's compute lane in which none of its collectives runs, in picoseconds.
std::vector<std::int64_t> bubble_ps_of_ranks(const Step& step, const StepTimeline& timeline);

}  // namespace lockstep::schedules
