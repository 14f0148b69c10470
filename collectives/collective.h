// The meaning of each collective, and the interface that every way to run one implements.
//
// A rank's input and output are arrays of blocks of `count` elements each. origin_of() defines the content of each
// output block: the one definition that the plan checker, the verification of timed calls and the docs share. n is the
// number of ranks. Bandwidth factors are nccl-tests' (doc/PERFORMANCE.md).
//
//   kind            input blocks   output blocks   output block b of rank r                busbw / algbw
//   all_reduce      1              1               reduction of input 0 over ranks          2(n-1)/n
//   reduce_scatter  n              1               reduction of input r over ranks          (n-1)/n
//   all_gather      1              n               input 0 of rank b                        (n-1)/n
//   broadcast       1              1               input 0 of the root                      1
//   reduce          1              1 at the root   reduction of input 0 over ranks          1
//   all_to_all      n              n               input r of rank b                        (n-1)/n
//   all_to_all_v    n              n               the same, with block sizes by pair       (n-1)/n
//   gather          1              n at the root   input 0 of rank b                        (n-1)/n
//   scatter         n at the root  1               input r of the root                      (n-1)/n
//   send_recv       1              1               input 0 of rank r-1 (ring shift)         1
//   hypercube       1              n               as all_gather, by neighbour exchange     1
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace lockstep::collectives {

enum class Kind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  send_recv,
  hypercube,
};

std::span<const Kind> all_kinds();
std::string_view name_of(Kind kind);     // "all_reduce"
Kind parse_kind(std::string_view name);  // throws usage Error

bool has_op(Kind kind);    // true if it reduces
bool has_root(Kind kind);  // true if it has a root rank

int input_blocks(Kind kind, int num_ranks, int root, int rank);  // 0 if the rank has no input
int output_blocks(Kind kind, int num_ranks, int root, int rank);

// Source of an output block's content.
struct Origin {
  bool reduced;  // true: the reduction over all ranks of input `block`; false: a copy of rank's input `block`
  int rank;      // only if not reduced
  int block;
};
Origin origin_of(Kind kind, int num_ranks, int root, int rank, int output_block);

// In place, a rank's input and output share memory so that these two blocks coincide (nccl-tests' convention).
struct InPlaceAlias {
  int input_block;
  int output_block;
};
InPlaceAlias in_place_alias(Kind kind, int num_ranks, int root, int rank);

// Bytes that algbw divides by: `count` elements per block times the larger of the two block counts.
std::int64_t message_bytes(Kind kind, int num_ranks, std::int64_t count, core::DType dtype);
double bus_bandwidth_factor(Kind kind, int num_ranks);
// algbw in GB/s (1e9 bytes/s), as nccl-tests defines it (hypercube counts n-1 blocks).
double algorithm_bandwidth_gbps(Kind kind, int num_ranks, std::int64_t bytes, double time_us);

// Elements that each rank sends to each other rank in an all_to_all_v.
struct CountMatrix {
  int num_ranks;
  std::vector<std::int64_t> counts;  // [from * num_ranks + to]
  std::int64_t at(int from, int to) const {
    return counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(num_ranks) + static_cast<std::size_t>(to)];
  }
};

// One collective operation with all its parameters.
struct Operation {
  Kind kind = Kind::all_reduce;
  std::int64_t count = 0;  // elements per block; ignored in all_to_all_v
  core::DType dtype = core::DType::f32;
  core::ReduceOp op = core::ReduceOp::sum;  // ignored unless has_op(kind)
  int root = 0;                             // ignored unless has_root(kind)
  bool in_place = false;
  std::shared_ptr<const CountMatrix> matrix = nullptr;  // all_to_all_v only
};

// Start of each block of a rank's input (output), in elements: one entry per block and one for the end.
std::vector<std::int64_t> input_offsets(const Operation& operation, int num_ranks, int rank);
std::vector<std::int64_t> output_offsets(const Operation& operation, int num_ranks, int rank);

// One rank's part of one operation, prepared to be run any number of times. All ranks of the world make theirs in the
// same order and call run() in the same order. Not to be shared between threads.
class Collective {
 public:
  virtual ~Collective() = default;
  // Does the operation once. Host collectives are done when it returns; device collectives are enqueued on the
  // stream that they were made with. Throws Error (timeout, rank_lost, ...), after which the object is unusable.
  virtual void run(const void* input, void* output) = 0;
};

}  // namespace lockstep::collectives
