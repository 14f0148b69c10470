// One row of zero_bench: its run, and the formulas that it is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel/zero_flags.h"
#include "core/record.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/layout.h"

namespace lockstep::parallel_bench {

// Bytes that a rank of a ZeRO run holds and sends by the formulas (parallel/parameters/zero_bytes.h), for its actual
// buckets with their padding.

struct BucketElems {
  std::int64_t padded = 0;
  bool held = false;  // stage 3: gathered once per step and kept (e.g. a word embedding that is also the head's matrix)
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

}  // namespace lockstep::parallel_bench
