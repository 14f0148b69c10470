// zero_bench: its flags, its rows and the formulas that they are compared with, its output.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/data_parallel/step_rank.h"
#include "bench/program/program.h"
#include "bench/step/part.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/layout.h"

namespace lockstep::parallel_bench {

// The command line of zero_bench.

struct ZeroFlags {
  StepFlags step;
  // Model of the table from the paper that the heading prints.
  double psi = 7.5e9;
  int psi_ranks = 64;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ZeroFlags parse_zero_flags(int argc, const char* const* argv);

// The rows of the table: checked options.
std::vector<trainer::TrainOptions> zero_rows(const ZeroFlags& flags);
trainer::TrainOptions zero_row(const StepFlags& flags, const workload::Layout& layout);

// Bytes that a rank of a ZeRO run holds and sends by the formulas (parallel/parameters/zero_bytes.h), for its actual
// buckets with their padding.

struct BucketElems {
  std::int64_t padded = 0;
  // Stage 3: once per step for a word embedding that is also the head's matrix, and once per microbatch for other
  // embeddings, whose backward reads no weights.
  parallel::ZeroGathers gathers = parallel::ZeroGathers::forward_and_backward;
};

// Bytes that a rank sends per step.
struct SentBytes {
  double weights = 0;    // gathers over all ranks that share them
  double gradients = 0;  // reductions within a set of shards; with two hops, the second hop
  double replicas = 0;   // weights and gradients, over replicas of shards
  double secondary = 0;  // gathers from a secondary copy
  double near = 0;       // the first hop
};
struct SentKind {
  const char* name;  // in records
  const char* words;
  double SentBytes::*bytes;
  bool is_used(const workload::Layout& row) const {
    return (bytes != &SentBytes::secondary || row.secondary_ranks > 0) &&
           (bytes != &SentBytes::near || row.near_ranks > 0);
  }
};
inline constexpr std::array kSentKinds{
    SentKind{"weights", "weights sent", &SentBytes::weights},
    SentKind{"gradients", "gradients sent", &SentBytes::gradients},
    SentKind{"over_replicas", "gradients sent over replicas", &SentBytes::replicas},
    SentKind{"secondary", "weights sent from a secondary copy", &SentBytes::secondary},
    SentKind{"near", "gradients sent to neighbours", &SentBytes::near},
};

// Bytes of a rank, counted or by the formulas.
struct ZeroBytes {
  parallel::BytesByKind held{};          // between steps, on the rank that holds most
  std::int64_t most_weights = 0;         // peak during a step
  SentBytes sent = {};                   // per step, without the norm
  parallel::OffloadedBytes offloaded{};  // by kind: per step, to the device and back
};
ZeroBytes zero_forms(const workload::Layout& layout, const std::vector<BucketElems>& buckets);

// Runs one row of zero_bench: a few training steps with one stage of ZeRO.

struct ZeroResult : ZeroBytes {  // counted
  ZeroBytes forms;
  std::int64_t padded = 0;               // elements of all buckets
  parallel::BytesByKind peak_of_each{};  // each kind's own peak in the timed steps, on the rank that holds most
  std::int64_t peak_bytes = 0;           // all kinds together
  std::int64_t activations_moved = 0;    // per step, to the device and back
  step_bench::PartResult part = {};

  double step_us() const;
  double update_us() const;  // the optimizer's part of the median step
  // Describes the differences from the formulas; empty if there are none.
  std::string wrong() const;
};

inline constexpr step_bench::Mode kZeroStep = step_bench::Mode::overlapped;  // as it trains
ZeroResult run_zero(const StepFlags& flags, const trainer::TrainOptions& row);

// Serves the row's step as a worker instead of measuring it.
void serve_zero(const StepFlags& flags, const trainer::TrainOptions& row);

// The heading that zero_bench prints.
std::string zero_heading_text(const ZeroFlags& flags, const trainer::TrainOptions& row);

// Main program of zero_bench.

// Runs all requested rows, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
