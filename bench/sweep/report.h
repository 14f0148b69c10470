// From results to the table's rows.
#pragma once

#include <optional>

#include "bench/sweep/session.h"
#include "bench/sweep/table.h"

namespace lockstep::sweep {

Row table_row(const Comparison& comparison, const SweepFlags& flags, int num_ranks);
// The row of an operation that failed; it has no numbers.
Row failed_row(const collectives::Operation& operation, const Contender& contender, int num_ranks);
Columns columns_of(const SessionPlan& session);

}  // namespace lockstep::sweep
