// A layout of more data-parallel ranks than this machine has, simulated from the pieces of the same layout with two.
//
// Kernels do the same work on the same number of sequences per rank, whatever the number of replicas; the optimizer of
// shards does its share. Collectives over replicas grow like the bytes that a rank of a ring sends, (n - 1) / n of the
// payload: latencies that grow with n are left out. Each rank is assumed to have cores of its own.
#pragma once

#include <cstdint>

#include "bench/scaling/prices.h"
#include "schedules/step/step.h"
#include "workload/groups.h"
#include "workload/layout.h"

namespace lockstep::scaling {

// `measured`: the step of `two`, which equals `many` except for dp, with prices of its pieces; `step`: that of `many`.
schedules::Step priced_beyond(schedules::Step step, const workload::Layout& many, const schedules::Step& measured,
                              const workload::Layout& two, const Prices& prices);

// Bytes that each of n ranks sends of a payload over those of each of m ranks.
double ring_growth(std::int64_t n, std::int64_t m);

}  // namespace lockstep::scaling
