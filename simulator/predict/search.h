// The search for the fastest layouts of a model on a machine, and the comparison of the kinds of parallelism.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::simulator {

// A parallel loop.

// Calls work(i) for all i on several threads; rethrows the first exception.
template <class Work>
void for_all(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex lock;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard<std::mutex> guard(lock);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(run);
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

// A lower bound of a step's simulated time.

// The largest sum, over all ranks, of the forwards before its first, its own work and the backwards after its last;
// plus the slowest rank's optimizer, which waits for all (predict()'s steps have that barrier). `works`: one per stage,
// with collectives folded into kernels. Messages and reductions do not count.
double step_bound_s(const schedules::Schedule& schedule, const std::vector<workload::StageWork>& works);

// Searches the fastest layouts of a model on a number of devices, among all legal ones that fit the memory.
//
// Every layout has a lower bound of its step time: the busiest rank's work, what has to run before its first and after
// its last microbatch, and the optimizer. Layouts are simulated in the order of their bounds, until no bound is below
// the slowest of the best ones known. The rest cannot be among the best, so the result is the same as after simulating
// all (branch and bound).

struct SearchSpace {
  std::int64_t gpus = 1;
  std::int64_t global_batch = 1;
  workload::Layout base;                            // options that all layouts share: cp, flash, overlaps, ...
  std::vector<std::string> schedules;               // names of schedules/generators/catalogue.h
  std::vector<std::int32_t> chunks{2, 3, 4, 6, 8};  // for schedules that take chunks
  std::vector<std::int64_t> microbatches{1, 2, 4, 8, 16};
  // Called by any thread with the number of layouts that are decided, and of all. Most are decided by their bounds.
  std::function<void(std::size_t done, std::size_t all)> decided = [](std::size_t, std::size_t) {};
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

// Predicts the layouts again in detail (Detail::pieces), and sorts by that.
void predict_in_pieces(const workload::Model& model, const Machine& machine, std::vector<FoundLayout>& best,
                       int threads);

// Compares the kinds of parallelism: data parallel, ZeRO-1 to 3, tensor parallel, pipeline parallel, and mixtures. Each
// is represented by its best layout that fits.
//
// The layouts of a model on a number of devices, their memory and their bounds are computed once; machines that differ
// in a link are then compared by simulation alone. As in the search above, layouts whose bound excludes them are not
// simulated.

// "DP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "TP", "PP", "TP+PP", then those with "+DP" (also with ZeRO-1 or 2, which hardly
// change the bytes sent), then those with "+ZeRO-3"; "one device". The simplest comes first.
const std::vector<std::string_view>& ways();
std::string_view way_of(const workload::Layout& layout);

// Relative accuracy of predictions: among ways within this of the fastest, the simplest wins.
inline constexpr double kSameTime = 0.01;

struct Fastest {
  std::vector<FoundLayout> best;  // best layout of the winner, and of the fastest other way that fits
  std::int64_t simulated = 0;
};

class WaySearch {
 public:
  // `fast`: the machine with the fastest links among those passed to fastest_on(); bounds are computed for it.
  WaySearch(const workload::Model& model, const Machine& fast, const SearchSpace& space);

  std::int64_t legal() const { return legal_; }
  double least_memory_bytes() const { return least_memory_bytes_; }
  // Least memory of a way's layouts, also if none fits; 0 if the way has no layout.
  double least_memory_bytes(std::string_view way) const;

  // `machine`: with no link faster than in the previous call. A slower link makes no step faster, so a layout's
  // previous time is a lower bound of its time now.
  Fastest fastest_on(const Machine& machine);

 private:
  struct Candidate {
    workload::Layout layout;
    std::string_view way;
    double bound_s = 0;
  };

  const workload::Model& model_;
  std::int64_t legal_ = 0;
  double least_memory_bytes_ = 0;
  std::vector<double> least_of_way_;   // least memory, in the order of ways()
  std::vector<Candidate> candidates_;  // layouts that fit, sorted by bound
};

}  // namespace lockstep::simulator
