// Searches the fastest layouts of a model on a number of devices, among all legal ones that fit the memory.
//
// Every layout has a lower bound of its step time: the busiest rank's work, what has to run before its first and after
// its last microbatch, and the optimizer. Layouts are simulated in the order of their bounds, until no bound is below
// the worst of the best known ones. The rest cannot be among the best, so the result equals that of simulating all
// (branch and bound).
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
  workload::Layout base;                            // options that all layouts share: cp, flash, overlaps, ...
  std::vector<std::string> schedules;               // names of schedules/generators/catalogue.h
  std::vector<std::int32_t> chunks{2, 3, 4, 6, 8};  // for schedules that take chunks
  std::vector<std::int64_t> microbatches{1, 2, 4, 8, 16};
};

// All layouts of the space that are valid for the model, in a fixed order.
std::vector<workload::Layout> legal_layouts(const workload::Model& model, const Machine& machine,
                                            const SearchSpace& space);

struct FoundLayout {
  workload::Layout layout;
  double bound_s = 0;
  Prediction prediction;
};

struct SearchResult {
  std::int64_t legal = 0;
  std::int64_t too_large = 0;  // legal layouts that need more memory than a device has
  std::int64_t beaten = 0;     // legal layouts whose bound is above the last of the best
  std::int64_t simulated = 0;
  std::vector<FoundLayout> best;  // at most `top`, the fastest first
  double least_memory_bytes = 0;  // least memory that any legal layout needs, also if none fits
};

// Compares layouts with one kernel per layer (Detail::folded). The result does not depend on the number of threads.
SearchResult search_layouts(const workload::Model& model, const Machine& machine, const SearchSpace& space,
                            std::size_t top, int threads);

// Predicts the layouts anew in detail (Detail::pieces), and sorts by that.
void predict_in_pieces(const workload::Model& model, const Machine& machine, std::vector<FoundLayout>& best,
                       int threads);

}  // namespace lockstep::simulator
