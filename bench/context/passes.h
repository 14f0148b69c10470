// A forward and backward of attention on context-parallel ranks, and the reference that checks it.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/transports/paced_link.h"
#include "parallel/context/context_attention.h"
#include "schedules/step/step.h"
#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::context_bench {

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

}  // namespace lockstep::context_bench
