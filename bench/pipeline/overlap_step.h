// A data-parallel training step: replicas of a model whose communication of gradients, and of sharded parameters,
// overlaps the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/pipeline/overlap_flags.h"
#include "collectives/plan/plan.h"
#include "schedules/passes/buckets.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

struct OverlapCase {
  int replicas = 1;
  int zero_stage = 0;
  double bucket_cap_mb = 25;  // ignored with zero_stage 3, where each layer is a unit
};

std::vector<schedules::GradientBucket> buckets_of(const OverlapFlags& flags, const OverlapCase& one);

// The whole step. If `kernels` is false, its kernels take no time.
schedules::Step overlap_step(const OverlapFlags& flags, const OverlapCase& one, bool kernels = true);

// The step's collectives.
std::vector<schedules::Comm> comms_of(const OverlapCase& one);

// The plan of --algo, which must have one lane. Throws a usage Error if there is no such plan.
plan::Plan plan_of(const OverlapFlags& flags, schedules::Comm comm, int ranks);

}  // namespace lockstep::pipeline
