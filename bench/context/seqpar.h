// seqpar_bench: its flags, the passes of attention on context-parallel ranks, its rows.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/program.h"
#include "bench/tp_linear/pass.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "core/record.h"
#include "core/statistics.h"
#include "parallel/context/context_attention.h"
#include "schedules/step/step.h"
#include "workload/context_layer.h"
#include "workload/context_list.h"
#include "workload/operations.h"

namespace lockstep::context_bench {

// The command line of seqpar_bench.

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

// The collectives with which context-parallel ranks run the exchanges of their list.

// All ranks must construct them in the same order; equal moves share one collective.
class Exchanges {
 public:
  Exchanges(const backends::MeshRank& rank, std::size_t channel, int num_ranks)
      : rank_(rank), channel_(channel), num_ranks_(num_ranks) {}

  // All ranks call it together, before the first run.
  void prepare(schedules::Comm comm, const parallel::ContextMove& move) { of(comm, move); }
  void run(schedules::Comm comm, const parallel::ContextMove& move);

 private:
  using Key = std::tuple<schedules::Comm, core::DType, std::int64_t, const void*>;
  collectives::Collective& of(schedules::Comm comm, const parallel::ContextMove& move);

  const backends::MeshRank& rank_;
  const std::size_t channel_;
  const int num_ranks_;
  std::byte nothing_{};  // placeholder buffer of a rank that sends or receives nothing
  std::map<Key, std::unique_ptr<collectives::Collective>> prepared_;
};

// The attention of a layer as pieces of a pass, in the order and with the dependences of the step model's recipe.

struct Piece {
  const workload::Operation* op = nullptr;
  bool is_exchange = false;
  int after = -1;  // for an exchange the last kernel before it, for a kernel the exchange that it waits for; -1: none
};

std::vector<workload::Operation> operations_of(const workload::ContextLayer& layer);
// `operations` must outlive the pieces.
std::vector<Piece> pieces_of(const std::vector<workload::Operation>& operations, bool backward);

// The simulator's prediction of a pass with overlapped exchanges.

// Microseconds from the start to the end of the last rank. kernel_us: [rank][piece], kernels as measured; exchanges
// take the times of the simulator's link formulas.
double simulated_us(const workload::ContextLayer& layer, const std::vector<Piece>& pieces, bool backward,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link);

// The results of a whole layer on one rank, in f32, and the positions of a rank's tokens in it.

inline constexpr std::uint64_t kSeed = 1;

// [batch, length, ...] each.
struct Whole {
  std::vector<float> qkv, d_o;  // random, and rounded to the dtype
  std::vector<float> o, d_qkv;  // computed from them
  double backward_us = 0;       // minimum time of one rank's kernels
  double forward_us = 0;
};
Whole reference_of(const parallel::ContextLayer& layer, int threads);

// Rows of the rank's tokens.
std::vector<float> rows_of(const parallel::ContextLayer& layer, const std::vector<float>& all);
// The largest difference of the rank's rows from the whole's, relative to the whole's largest element; NaN if there is
// one.
double difference(const parallel::ContextLayer& layer, const std::vector<float>& found, const std::vector<float>& all);
// Its bound: 1e-5 in f32; otherwise from the roundings to the dtype (parallel/context/context_attention.h).
double allowed_difference(const parallel::ContextLayer& layer);

// Runs attention on its context-parallel ranks: timed in all ways of running it in every round, and checked in every
// round.

using tp_linear::Direction;
using tp_linear::Spent;
using Form = tp_linear::Way;  // how a pass is run; `way` is the form of context parallelism

struct Result {
  tp_linear::LayerTimes times = {};
  std::vector<double> kernels_us;           // medians per rank, forward and backward
  std::array<double, 2> sent_bytes = {};    // [direction], on the rank that sends most, per pass: counted in the plans
  std::array<double, 2> listed_bytes = {};  // likewise: from the list
  // [direction], simulated time that overlapped exchanges add to kernels: kernels as measured, exchanges on the
  // emulated link; 0 without one.
  std::array<double, 2> simulated_exposed_us = {};
  std::int64_t peak_bytes = 0;  // on the rank that holds most, without its input and the output's gradient
  double worst_difference = 0;  // over all rounds and ranks, relative to the largest element
  double allowed_difference = 0;
  std::int64_t checked_passes = 0;
  // Energy of a forward and a backward with overlapped exchanges. The text is one line, also without a counter. Only on
  // rank 0.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  // Share of the communication time that kernels hide, forward and backward; 1 if there is almost none.
  core::Estimate hidden() const;
  double simulated_hidden() const;  // the same, by the simulator
  double load() const;              // the slowest rank's kernels over the mean
  std::string wrong() const;        // empty: nothing is wrong
};

// Under mpirun all ranks call it, and all have the result.
Result run_layer(const ContextFlags& flags, const parallel::ContextLayer& layer, const Whole& whole);

}  // namespace lockstep::context_bench
