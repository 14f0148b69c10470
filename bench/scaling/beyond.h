// A layout of more data-parallel ranks than there are, simulated from the pieces of the same layout with two.
//
// Kernels do the same work on as many sequences a rank, whatever the number of replicas; the optimizer of shards does
// its share. Collectives that replicas take part in grow as the bytes do that a rank of a ring sends, (n - 1) / n of
// the payload: latencies that grow with n are left out. Each rank is supposed to have cores of its own.
#pragma once

#include <cstdint>

#include "bench/scaling/prices.h"
#include "schedules/step/step.h"
#include "workload/groups.h"
#include "workload/layout.h"

namespace lockstep::scaling {

// `measured`: the step of `two`, which is `many` but for dp, with prices of its pieces; `step`: that of `many`.
schedules::Step priced_beyond(schedules::Step step, const workload::Layout& many, const schedules::Step& measured,
                              const workload::Layout& two, const Prices& prices);

// The bytes that each of n ranks sends of a payload, divided by those of each of m ranks.
double ring_growth(std::int64_t n, std::int64_t m);

}  // namespace lockstep::scaling
