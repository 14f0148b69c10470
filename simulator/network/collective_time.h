// What a collective takes by formula, on a machine with levels. docs/metrics.md has the formulas with their sources.
//
// On one level with alpha a message and B bytes/s a rank, S bytes of payload (schedules/step/step.h) and n ranks:
//   ring        reduce-scatter, all-gather  (n-1) (alpha + S/(n B));  all-reduce twice that
//   tree        all-reduce                  2 ceil(log2 n) alpha + 2 S/B, segments so small that levels overlap
//   exchange    all-to-all, n-1 messages    (n-1) (alpha + S/(n B))
// Across levels a ring passes from switch to switch once for each of its channels, so that all members within a switch
// carry its bytes over their own ports (NCCL's rings): its bandwidth is the least of a port's inside and of the sum of
// ports outside; each of its n-1 steps has the latency of what it crosses.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

enum class CollectiveAlgorithm : std::uint8_t { ring, tree, exchange, measured };
std::string_view name_of(CollectiveAlgorithm algorithm);

struct CollectivePrediction {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  double latency_us = 0;
  double transfer_us = 0;
  double time_us() const { return latency_us + transfer_us; }
};

// `members`: for each level of the machine, how many members one switch of it joins (workload/groups.h); the
// last is all of them.
CollectivePrediction predict_collective(const Machine& machine, schedules::Comm comm, CollectiveAlgorithm algorithm,
                                        double bytes, std::span<const std::int64_t> members);
// The faster of those that there are; what was measured with as many ranks (Machine::measured) in their place, where it
// was: on straight lines between sizes, the largest size's bandwidth beyond it.
CollectivePrediction best_collective(const Machine& machine, schedules::Comm comm, double bytes,
                                     std::span<const std::int64_t> members);

// Microseconds of so many bytes.
double measured_us(const Measured::Collective& measured, double bytes);

}  // namespace lockstep::simulator
