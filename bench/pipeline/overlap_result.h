// The time of a data-parallel step, and the share of its communication that kernels hide.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/pipeline/overlap_step.h"
#include "bench/pipeline/result.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::pipeline {

struct OverlapResult {
  schedules::Step step;
  schedules::StepTimeline timeline;
  double step_ms = 0;           // kernels and communication overlapped
  double compute_ms = 0;        // kernels alone
  double communication_ms = 0;  // the same collectives in the same order, with kernels that take no time
  double simulated_ms = 0;      // step_ms in virtual time
  // The recurrence of gradient buckets; only for rings.
  std::optional<double> closed_form_ms;
  std::optional<Emulation> emulation;
  std::vector<double> exposed_of_rank_ms;
  std::int32_t collectives = 0;  // per rank
  double sent_bytes = 0;         // per rank

  double exposed_ms() const { return step_ms - compute_ms; }
  // Share of the communication that is hidden.
  double efficiency() const { return communication_ms > 0 ? 1 - exposed_ms() / communication_ms : 1; }
};

OverlapResult run_overlap(const OverlapFlags& flags, const OverlapCase& one);

}  // namespace lockstep::pipeline
