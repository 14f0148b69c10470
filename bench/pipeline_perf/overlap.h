// overlap_perf: its flags, its steps, their closed form and results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline_perf/cases.h"
#include "bench/program/program.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
#include "core/statistics.h"
#include "schedules/passes/passes.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

// The command line of overlap_perf.

// ZeRO stages: the replicas shard 0 nothing, 1 the optimizer states, 2 also gradients, 3 also parameters.
struct OverlapFlags : program::Invocation {
  Mode mode = Mode::simulated;

  // Swept lists, in this order of nesting.
  std::vector<int> replicas{4};
  std::vector<int> zero_stages{0};
  std::vector<double> bucket_caps_mb{25};  // MiB

  int layers = 12;
  int tensors_per_layer = 4;
  int microbatches = 1;
  double forward_ms = 1;  // per layer
  double backward_ms = 2;
  double optimizer_ms = 0;                                // per rank
  std::int64_t bytes_per_layer = std::int64_t{28} << 20;  // gradients per layer, and the same for parameters
  int prefetch = 1;                                       // layers whose gathers are prefetched
  std::string algorithm = "ring";
  transports::LinkSpec link{.latency_us = 20, .gbps = 12.5};

  int repeat = 5;
  int timeout_s = 60;
  std::string trace_file;
};

OverlapFlags parse_overlap_flags(int argc, const char* const* argv);

// A data-parallel training step: replicas of a model whose communication of gradients, and of sharded parameters,
// overlaps the kernels.

struct OverlapCase {
  int replicas = 1;
  int zero_stage = 0;
  double bucket_cap_mb = 25;  // ignored with zero_stage 3, where each layer is a unit
};

std::vector<schedules::GradientBucket> buckets_of(const OverlapFlags& flags, const OverlapCase& bench_case);

// The whole step. If `kernels` is false, its kernels take no time.
schedules::Step overlap_step(const OverlapFlags& flags, const OverlapCase& bench_case, bool kernels = true);

// The step's collectives.
std::vector<schedules::Comm> comms_of(const OverlapCase& bench_case);

// The plan of --algo, which must have one lane. Throws a usage Error if there is no such plan.
plan::Plan plan_of(const OverlapFlags& flags, schedules::Comm comm, int ranks);

// The time of a data-parallel step, and the share of its communication that kernels hide.

struct OverlapResult : TimedStep {
  double step_ms = 0;           // kernels and communication overlapped
  double compute_ms = 0;        // kernels alone
  double communication_ms = 0;  // the same collectives in the same order, with kernels that take no time
  // The recurrence of gradient buckets; only for rings.
  std::optional<double> closed_form_ms;
  std::int32_t collectives = 0;  // per rank
  double sent_bytes = 0;         // per rank

  double exposed_ms() const { return std::max(step_ms - compute_ms, 0.0); }
  // Share of the communication that is hidden, 0 to 1; exact in virtual time.
  core::Estimate hidden() const;
};

OverlapResult run_overlap(const OverlapFlags& flags, const OverlapCase& bench_case);

}  // namespace lockstep::pipeline
