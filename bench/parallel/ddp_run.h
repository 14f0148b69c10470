// A row of ddp_overlap_bench: one model on so many replicas, with one size of buckets, over one kind of link.
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

// Gradients of every run with collectives, and the weights after its update, are compared with those of a reference run
// without overlap, bit for bit; gradients of the reference with the sum that rank 0 makes of all ranks' shares on its
// own (gradient_check.h).
DdpResult run_ddp(const DdpFlags& flags, const DdpCase& one, const Tamper& tamper = {});

// The row as a worker, in place of a run: the step with its reductions beside the backward, and one after the other.
void serve_ddp(const DdpFlags& flags, const DdpCase& one);

}  // namespace lockstep::parallel_bench
