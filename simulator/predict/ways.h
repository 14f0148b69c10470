// Compares the kinds of parallelism: data parallel, ZeRO-1 to 3, tensor parallel, pipeline parallel, and mixtures. Each
// is represented by its best layout that fits.
//
// The layouts of a model on a number of devices, their memory and their bounds are computed once; machines that differ
// in a link are then compared by simulation alone. As in search.h, layouts whose bound excludes them are not simulated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/predict/search.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::simulator {

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
