// The measurements of a row of ddp_overlap_bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/record.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::parallel_bench {

// One sample a turn; in a turn each way has one run, so that what the machine does meanwhile falls on all alike. All
// ways start from the same weights and the same tokens. Times are ms, of the slowest rank.
struct DdpTurns {
  std::vector<double> compute_ms;                       // kernels alone
  std::vector<double> communication_ms;                 // collectives alone
  std::vector<double> step_ms;                          // buckets leave beside the backward
  std::vector<double> one_by_one_ms;                    // buckets leave after it
  std::vector<double> backward_ms;                      // of kernels alone: beside which buckets can travel
  std::vector<double> exposed_ms;                       // of the step's timeline: kernels wait while buckets travel
  std::vector<double> predicted_ms;                     // of the step, by the recurrence
  std::vector<schedules::StepTimeline> timelines = {};  // of the step
};

struct DdpResult {
  DdpTurns turns;
  std::int32_t buckets = 0;
  std::int64_t gradient_bytes = 0;  // of a rank
  double sent_bytes = 0;            // by a rank in a step, the mean of ranks: counted in the plans that were run
  double least_bytes = 0;           // what algorithms that send as few as can be would have sent of the same
  double formula_bytes = 0;         // workload::wire_bytes of all buckets
  bool in_planned_order = true;     // in every turn, gradients of a bucket were there no earlier than of the one before
  std::int64_t wrong = 0;           // elements, over all checks and ranks
  double most_of_bound = 0;         // of its bound, the most that an element was off by (gradient_bounds.h)
  double relative_error = 0;        // |reduced - sum| / |sum| of all gradients of a step, Euclidean
  schedules::Step step;             // overlapped
  schedules::StepTimeline timeline;  // of the turn whose step is the median

  std::optional<core::EnergyRecord> energy;  // of the overlapped steps
  std::string energy_text;                   // a line, also where there is none

  // Medians over turns.
  double compute_ms() const;
  double communication_ms() const;
  double step_ms() const;
  double one_by_one_ms() const;
  double backward_ms() const;
  double predicted_ms() const;
  double breakdown_exposed_ms() const;
  std::vector<double> exposed_samples_ms() const;  // step - compute of each turn
  double exposed_ms() const;
  // Whether the reductions had the bytes that the formula says, and no fewer than that takes were sent.
  bool sent_as_formula() const;
  bool is_right() const { return wrong == 0 && sent_as_formula(); }
  // docs/metrics.md: communication that is hidden, over the most that can be.
  double efficiency() const;
};

}  // namespace lockstep::parallel_bench
