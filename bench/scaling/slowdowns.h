// Slowdowns: how many times as long pieces take while others run as alone. Measured in pairs, applied in virtual time.
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

// A median over samples that are weighted by how long they are.
class Factor {
 public:
  // A piece that takes `alone_ps` alone took `took_ps`, `beside_ps` of it while others ran. Samples with little overlap
  // say nothing and are dropped.
  void add(std::int64_t alone_ps, std::int64_t took_ps, std::int64_t beside_ps);
  double value() const { return value_; }  // 1 without samples
  std::size_t samples() const { return samples_.size(); }

 private:
  std::vector<std::pair<double, double>> samples_;  // factor, weight: sorted
  double value_ = 1;
};

// Kernels that are slowed down alike: forward, backward (and its halves), recomputation, the optimizer.
schedules::Op family_of(schedules::Op op);

struct Slowdowns {
  // The factor of a kernel while that many ranks compute, its own among them; by family.
  std::map<schedules::Op, std::map<std::int32_t, Factor>> kernel;
  // The further factor of a kernel while a collective of its rank runs.
  std::map<schedules::Op, Factor> kernel_beside;
  // The factor of a collective while all of its members compute.
  std::array<Factor, schedules::kNumLanes> collective;

  // Straight lines between what was measured, from 1 for one rank.
  double of_kernel(schedules::Op op, std::int32_t computing, bool beside_collective) const;
  // `share` of the members compute.
  double of_collective(schedules::Lane lane, double share) const;
};

// From slots of several kernels, and of a collective beside kernels.
void add_samples(Slowdowns& slowdowns, const schedules::Step& step, const std::vector<SlotSpans>& slots,
                 const Prices& prices);

// As play_contended() asks for them.
simulator::Slowdown slowdown_of(const schedules::Step& step, const Slowdowns& slowdowns,
                                const simulator::LanesBeside& beside);

}  // namespace lockstep::scaling
