// The time of a collective on a machine, by formula. docs/metrics.md has the formulas with their sources.
//
// On a machine that has NCCL (Machine::nccl) NCCL's tuner chooses (nccl_choice.h), and nccl_time.h gives the time. On
// others the fastest of this library's plans runs: on one level with latency alpha per message, B bytes/s per rank, S
// bytes of payload (schedules/step/step.h) and n ranks
//   ring        reduce-scatter, all-gather  (n-1) (alpha + S/(n B));  all-reduce twice that
//   tree        all-reduce                  2 ceil(log2 n) alpha + 2 S/B, segments so small that levels overlap
//   exchange    all-to-all, n-1 messages    (n-1) (alpha + S/(n B))
//   exchange    shift, a message            alpha + S/B, of the slowest link that neighbours cross
//   chain       broadcast, reduce: in pieces so small that all links are at work, as an all-gather of n/(n-1) S, which
//               sends as much over every link in as many steps
// Across levels a ring passes from switch to switch once for each of its channels, so that all members within a switch
// carry its bytes over their own ports (NCCL's rings): its bandwidth is the least of a port's inside and of the sum of
// ports outside; each of its n-1 steps has the latency of what it crosses. On a torus of X x Y rings go along rows and
// then along columns (Mikami et al. 2018, arXiv:1811.05233, section 2.2): X-1 + Y-1 steps, over one link at a time; of
// an all-to-all the busiest link decides.
#pragma once

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_prediction.h"
#include "simulator/network/rates.h"

namespace lockstep::simulator {

// The time by the formulas of this library's plans.
CollectivePrediction predict_collective(const Machine& machine, schedules::Comm comm, CollectiveAlgorithm algorithm,
                                        double bytes, MembersOfLevels members);
// The fastest way on this machine. If the collective was measured with this number of ranks (Machine::measured), the
// measured time instead: interpolated linearly between sizes, with the largest size's bandwidth beyond it.
CollectivePrediction best_collective(const Machine& machine, schedules::Comm comm, double bytes,
                                     MembersOfLevels members);

// Measured microseconds for `bytes`, interpolated.
double measured_us(const Measured::Collective& measured, double bytes);

}  // namespace lockstep::simulator
