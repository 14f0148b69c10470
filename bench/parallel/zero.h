// zero_bench: its flags, its rows and the formulas that they are compared with, its output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel/step_rank.h"
#include "bench/program/program.h"
#include "core/record.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/layout.h"

namespace lockstep::parallel_bench {

// The command line of zero_bench.

struct ZeroFlags {
  StepFlags step;
  std::vector<int> stages{0, 1, 2, 3};
  std::vector<int> shard_ranks{0};  // stages 1 to 3: ranks that share one set of shards; 0: all
  // Stage 3: ranks that share a secondary copy of the weights, and the encoding in which weights are gathered.
  std::vector<int> secondary_ranks{0};
  std::vector<workload::CompressionWay> weight_compression{workload::CompressionWay::none};
  // Stages 1 to 3: the encoding of gradients on the wire, and the number of neighbours that sum them first.
  std::vector<workload::Compression> compression{workload::Compression{}};
  std::vector<int> near_ranks{0};
  std::vector<bool> prefetch{true, false};  // stage 3
  std::vector<core::DType> compute{core::DType::f32, core::DType::bf16};
  std::vector<core::DType> gradient{core::DType::f32};
  std::vector<workload::OffloadPlaces> offload{workload::OffloadPlaces{}};
  std::vector<workload::Update> update{workload::Update::step_end};
  // Model of the table from the paper that the heading prints.
  double psi = 7.5e9;
  int psi_ranks = 64;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ZeroFlags parse_zero_flags(int argc, const char* const* argv);

// One row of the table.
struct ZeroRow {
  int replicas = 2;
  int stage = 0;
  bool prefetch = true;
  core::DType compute = core::DType::f32;
  core::DType gradient = core::DType::f32;  // f32, or the same as compute
  int shard_ranks = 0;                      // ranks that share one set of shards; 0: all
  workload::OffloadPlaces offload = {};
  workload::Update update = workload::Update::step_end;
  int secondary_ranks = 0;
  workload::CompressionWay weight_compression = workload::CompressionWay::none;
  workload::Compression compression = {};
  int near_ranks = 0;

  int shards() const { return stage > 0 && shard_ranks > 0 ? shard_ranks : replicas; }
};
std::vector<ZeroRow> zero_rows(const ZeroFlags& flags);
trainer::TrainOptions options_of(const ZeroFlags& flags, const ZeroRow& row);  // checked

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
ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout);

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
};

ZeroResult run_zero(const ZeroFlags& flags, const ZeroRow& row);

// Serves the row's step as a worker instead of measuring it.
void serve_zero(const ZeroFlags& flags, const ZeroRow& row);

// The text that zero_bench prints, as pure functions of the results.

std::string zero_heading_text(const ZeroFlags& flags);
std::string zero_row_text(const ZeroRow& row, const ZeroResult& result);
std::string zero_ending_text(std::size_t rows, std::size_t wrong);

// Results of zero_bench as records (docs/record_format.md).

core::RunRecord zero_run_record(const ZeroFlags& flags);
core::ShardingRecord sharding_record(const core::RunRecord& run, const ZeroFlags& flags, const ZeroRow& row,
                                     const ZeroResult& result);

// Main program of zero_bench.

// Runs every row that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
