// Which layout of a number of devices is fastest: all legal ones that fit the memory, best first.
//
// Every layout gets a lower bound of its step: the time that the busiest rank needs for its work, what has to run
// before its first and after its last microbatch, and the optimizer. Layouts are then simulated in the order of their
// bounds, until no bound is below the worst of the best that are known. What is left out cannot be among the best, so
// the answer is that of simulating all (branch and bound).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::simulator {

struct SearchSpace {
  std::int64_t gpus = 1;
  std::int64_t global_batch = 1;
  workload::Layout base;                            // what all layouts share: cp, flash, overlaps, ...
  std::vector<std::string> schedules;               // of pipelines; names of schedules/generators/catalogue.h
  std::vector<std::int32_t> chunks{2, 3, 4, 6, 8};  // of schedules that take them
  std::vector<std::int64_t> microbatches{1, 2, 4, 8, 16};
};

// All layouts of the space that the model can have, in a fixed order.
std::vector<workload::Layout> legal_layouts(const workload::Model& model, const Machine& machine,
                                            const SearchSpace& space);

struct FoundLayout {
  workload::Layout layout;
  double bound_s = 0;
  Prediction prediction;
};

struct SearchResult {
  std::int64_t legal = 0;
  std::int64_t too_large = 0;  // of those: need more memory than a device has
  std::int64_t beaten = 0;     // their bound is above the last of the best
  std::int64_t simulated = 0;
  std::vector<FoundLayout> best;  // at most `top`, the fastest first
  double least_memory_bytes = 0;  // of the layout that needs least, also if none fits
};

// Layouts are compared with a layer as one kernel (Detail::folded). Runs on `threads` threads; the result does not
// depend on how many.
SearchResult search_layouts(const workload::Model& model, const Machine& machine, const SearchSpace& space,
                            std::size_t top, int threads);

// Predicts them anew, every piece of its own, and sorts by that.
void predict_in_pieces(const workload::Model& model, const Machine& machine, std::vector<FoundLayout>& best,
                       int threads);

}  // namespace lockstep::simulator
