// The command line of seqpar_bench.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "parallel/context/context_attention.h"
#include "workload/context_list.h"

namespace lockstep::context_bench {

struct ContextFlags : program::Invocation {
  std::vector<workload::ContextWay> ways;  // all, if none is given
  std::vector<int> ranks{2};
  std::vector<int> lengths{1024};
  std::int64_t batch = 1;
  std::int64_t heads = 8;
  std::int64_t head_columns = 64;
  core::DType dtype = core::DType::f32;
  bool causal = true;
  std::optional<transports::LinkSpec> link;
  std::string fit_model;   // model whose longest sequence is searched; empty: none
  std::string fit_layout;  // without cp and cp_way
  double fit_gb = 80;
  int threads = 1;
  int rounds = 7;
  int warmup_rounds = 1;
  std::chrono::milliseconds timeout{60'000};
  program::PlaceFlags place;
  transports::MpiWorld* mpi = nullptr;  // --transport mpi, once it is initialised
  bool all_ranks = true;                // true: all ranks of mpirun; false: the number given by --cp
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ContextFlags parse_context_flags(int argc, const char* const* argv);

// One row: the attention of one layer on its ranks.
parallel::ContextLayer layer_of(const ContextFlags& flags, workload::ContextWay way, int ranks, int length);
std::vector<parallel::ContextLayer> layers_of(const ContextFlags& flags);
// Refuses impossible layers before anything is timed.
void check_layers(const ContextFlags& flags);

}  // namespace lockstep::context_bench
