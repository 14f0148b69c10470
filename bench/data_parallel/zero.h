// zero_bench: its flags, its rows and the formulas that they are compared with, its output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/data_parallel/step_rank.h"
#include "bench/program/program.h"
#include "core/record.h"
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
  double secondary = 0;  // gathers from a secondary copy
  double gradients = 0;  // reductions within a set of shards; with two hops, the second hop
  double near = 0;       // the first hop
  double replicas = 0;   // weights and gradients, over replicas of shards
};

struct ZeroForms {
  parallel::BytesByKind held{};          // weights, gradients, optimizer states: between steps
  std::int64_t most_weights = 0;         // peak during a step
  SentBytes sent = {};                   // per step
  parallel::OffloadedBytes offloaded{};  // per step, to the device and back
};
ZeroForms zero_forms(const workload::Layout& layout, const std::vector<BucketElems>& buckets);

// Runs one row of zero_bench: a few training steps with one stage of ZeRO.

struct ZeroResult {
  std::int64_t parameters = 0;
  std::int64_t padded = 0;               // elements of all buckets
  parallel::BytesByKind held{};          // between steps, on the rank that holds most
  parallel::BytesByKind peak_of_each{};  // each kind's own peak in the timed steps, on that rank
  std::int64_t peak_bytes = 0;           // all kinds together
  SentBytes sent = {};                   // per rank and step, without the norm
  parallel::OffloadedBytes offloaded{};  // by kind: per step, to the device and back
  std::int64_t activations_moved = 0;    // per step, to the device and back
  double offloaded_bytes() const;        // all kinds together
  std::vector<double> update_ms;         // the optimizer's task of each step, on the slowest rank
  double update_median_ms() const;
  ZeroForms forms;
  std::vector<double> samples_ms;
  std::optional<core::EnergyRecord> energy;
  std::string energy_text;  // one line, also if nothing was measured
  double step_ms() const;

  // Describes the differences from the formulas; empty if there are none.
  std::string wrong() const;
  bool is_right() const { return wrong().empty(); }
};

ZeroResult run_zero(const StepFlags& flags, const trainer::TrainOptions& row);

// Serves the row's step as a worker instead of measuring it.
void serve_zero(const StepFlags& flags, const trainer::TrainOptions& row);

// The text that zero_bench prints, as pure functions of the results.

std::string zero_heading_text(const ZeroFlags& flags, const trainer::TrainOptions& row);
std::string zero_row_text(const trainer::TrainOptions& row, const ZeroResult& result);
std::string zero_ending_text(const std::vector<ZeroResult>& results);

// Main program of zero_bench.

// Runs every row that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
