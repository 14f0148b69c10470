// seqpar_bench: its flags, the passes of attention on context-parallel ranks, its rows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/step/part.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "core/statistics.h"
#include "parallel/context/context_attention.h"
#include "workload/context_layer.h"
#include "workload/context_list.h"

namespace lockstep::context_bench {

// The command line of seqpar_bench.

struct ContextFlags : step_bench::PartFlags {
  std::vector<workload::ContextWay> ways;  // all, if none is given
  std::vector<int> ranks{2};
  std::vector<int> lengths{1024};
  std::int64_t batch = 1;
  std::int64_t heads = 8;
  std::int64_t head_columns = 64;
  core::DType dtype = core::DType::f32;
  bool causal = true;
  std::string fit_model;   // model whose longest sequence is searched; empty: none
  std::string fit_layout;  // without cp and cp_way
  double fit_gb = 80;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ContextFlags parse_context_flags(int argc, const char* const* argv);

// One row: the attention of one layer on its ranks.
parallel::ContextLayer layer_of(const ContextFlags& flags, workload::ContextWay way, int ranks, int length);
std::vector<parallel::ContextLayer> layers_of(const ContextFlags& flags);
// Refuses impossible layers before anything is timed.
void check_layers(const ContextFlags& flags);

using step_bench::Direction;
using step_bench::Mode;

// The results of a whole layer on one rank, in f32: [batch, length, ...] each.
struct Whole {
  std::vector<float> qkv = {}, d_o = {};  // random, and rounded to the dtype
  std::vector<float> o = {}, d_qkv = {};  // computed from them
};
Whole reference_of(const parallel::ContextLayer& layer, int threads);

// Runs attention on its context-parallel ranks: timed in all modes in every round, and checked in every round.

struct Result {
  step_bench::PartResult part = {};
  // [direction], simulated time that overlapped exchanges add to kernels: kernels as measured, exchanges on the
  // emulated link; 0 without one.
  std::array<double, 2> simulated_exposed_us = {};
  double allowed_difference = 0;  // relative to the largest element

  std::vector<double> kernels_us() const;  // medians per rank, forward and backward
  // Share of the communication time that kernels hide, forward and backward; 1 if there is almost none.
  core::Estimate hidden() const;
  double simulated_hidden() const;  // the same, by the simulator
  double load() const;              // the slowest rank's kernels over the mean
  std::string wrong() const;        // empty: nothing is wrong
};

// Under mpirun all ranks call it, and all have the result.
Result run_layer(const ContextFlags& flags, const parallel::ContextLayer& layer, const Whole& whole);

}  // namespace lockstep::context_bench
