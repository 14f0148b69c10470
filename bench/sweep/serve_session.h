// Serves a session's rows as cases of a worker (bench/serve/orders.h), in place of sweeping over them.
#pragma once

#include <span>
#include <string>

#include "bench/sweep/session.h"

namespace lockstep::sweep {

// Runs on every rank; rank 0 receives the orders. Rows are out of place:
// "all_reduce/two_shot/float/sum/65536B/ranks:2/local". A row's first order also fills its buffers and checks a batch
// of its results.
void serve_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints);

}  // namespace lockstep::sweep
