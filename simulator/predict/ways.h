// Which way to divide a step is fastest: data parallel, ZeRO-1 to 3, tensor parallel, pipeline parallel, or mixtures.
// Of each way the best layout that fits is what counts.
//
// The layouts of a model on a number of devices, their memory and their bounds are worked out once; machines that
// differ in a link are then compared by simulation alone. As in search.h, layouts whose bound cannot be among the
// answers are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/predict/search.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::simulator {

// "DP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "TP", "PP", "TP+PP", then those with "+DP" (also with ZeRO-1 or 2, which change
// what a step sends by little), then those with "+ZeRO-3"; "one device". The simplest comes first.
const std::vector<std::string_view>& ways();
std::string_view way_of(const workload::Layout& layout);

// Predictions are not exact to more than that: of ways as close to the fastest the simplest is taken.
inline constexpr double kSameTime = 0.01;

struct Fastest {
  std::vector<FoundLayout> best;  // of the winner, and of the fastest other way that fits
  std::int64_t simulated = 0;
};

class WaySearch {
 public:
  // `fast`: the machine with the fastest links among those that fastest_on() is asked about; bounds are of it.
  WaySearch(const workload::Model& model, const Machine& fast, const SearchSpace& space);

  std::int64_t legal() const { return legal_; }
  double least_memory_bytes() const { return least_memory_bytes_; }
  // Of a way, also where none of it fits; 0: no layout goes this way.
  double least_memory_bytes(std::string_view way) const;

  // `machine`: with no link faster than on the machine of the call before. A slower link makes no step faster, so what
  // a layout took before is a bound of what it takes now.
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
  std::vector<double> least_of_way_;   // as in ways()
  std::vector<Candidate> candidates_;  // that fit, by their bounds
};

}  // namespace lockstep::simulator
