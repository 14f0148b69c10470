// Slowdowns: time of a piece while others run over its time alone. Measured in pairs, applied in virtual time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/scaling/prices.h"
#include "schedules/step/step.h"
#include "simulator/contention/contended.h"

namespace lockstep::scaling {

// A median over samples weighted by their length.
class Factor {
 public:
  // Adds a piece that takes `alone_ps` alone and took `took_ps`, of which other pieces ran during `beside_ps`. Samples
  // with little overlap are uninformative and dropped.
  void add(std::int64_t alone_ps, std::int64_t took_ps, std::int64_t beside_ps);
  double value() const { return value_; }  // 1 without samples
  std::size_t samples() const { return samples_.size(); }

 private:
  std::vector<std::pair<double, double>> samples_;  // factor, weight; sorted
  double value_ = 1;
};

// Kernels that share a slowdown: forward, backward (and its halves), recomputation, the optimizer.
schedules::Op family_of(schedules::Op op);

struct Slowdowns {
  // Factor of a kernel by the number of ranks that compute, its own included; by family.
  std::map<schedules::Op, std::map<std::int32_t, Factor>> kernel;
  // Additional factor of a kernel while a collective of its rank runs.
  std::map<schedules::Op, Factor> kernel_beside;
  // Factor of a collective while all of its members compute.
  std::array<Factor, schedules::kNumLanes> collective;

  // Interpolates linearly between measured numbers of ranks, from 1 for one rank.
  double of_kernel(schedules::Op op, std::int32_t computing, bool beside_collective) const;
  // `share` of the members compute.
  double of_collective(schedules::Lane lane, double share) const;
};

// Takes samples from slots of several kernels, and of a collective with kernels.
void add_samples(Slowdowns& slowdowns, const schedules::Step& step, const std::vector<SlotSpans>& slots,
                 const Prices& prices);

// In the form that play_contended() takes.
simulator::Slowdown slowdown_of(const schedules::Step& step, const Slowdowns& slowdowns,
                                const simulator::LanesBeside& beside);

}  // namespace lockstep::scaling
