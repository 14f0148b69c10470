// Runs one row of ddp_overlap_bench: one model, a number of replicas, one bucket size, one kind of link.
#pragma once

#include <functional>

#include "bench/parallel/ddp_flags.h"
#include "bench/parallel/ddp_result.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::parallel_bench {

// For tests: changes a rank's gradients after a run, before they are compared.
struct Tamper {
  std::function<void(trainer::RankModel& model)> reference = [](trainer::RankModel& /*model*/) {};
  std::function<void(trainer::RankModel& model)> overlapped = [](trainer::RankModel& /*model*/) {};
};

// Gradients of every run with collectives, and the weights after its update, are compared bit for bit with those of a
// reference run without overlap. Gradients of the reference are compared with the sum that rank 0 computes from all
// ranks' shares on its own (gradient_check.h).
DdpResult run_ddp(const DdpFlags& flags, const DdpCase& one, const Tamper& tamper = {});

// Serves the row as a worker instead of measuring it: the step with overlapped reductions, and the step with reductions
// after the backward.
void serve_ddp(const DdpFlags& flags, const DdpCase& one);

}  // namespace lockstep::parallel_bench
