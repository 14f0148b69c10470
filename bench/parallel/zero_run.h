// A row of zero_bench: a few training steps with one stage of ZeRO.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel/zero_flags.h"
#include "bench/parallel/zero_forms.h"
#include "core/record.h"

namespace lockstep::parallel_bench {

struct ZeroResult {
  std::int64_t parameters = 0;
  std::int64_t padded = 0;               // elements of all buckets
  parallel::BytesByKind held{};          // after a step, of the rank that holds most
  parallel::BytesByKind peak_of_each{};  // each kind's own peak in the steps that were timed; likewise
  std::int64_t peak_bytes = 0;           // of all kinds together
  SentBytes sent = {};                   // by a rank in a step, without the norm
  parallel::OffloadedBytes offloaded{};  // by kind: to the device and away from it in a step
  std::int64_t activations_moved = 0;    // likewise
  double offloaded_bytes() const;        // of all kinds
  std::vector<double> update_ms;         // the optimizer's task of each step, of the rank that takes the longest
  double update_median_ms() const;
  ZeroForms forms;
  std::vector<double> samples_ms;
  std::optional<core::EnergyRecord> energy;
  std::string energy_text;  // a line, also where there is none
  double step_ms() const;

  // The differences from the formulas, in words; empty: nothing.
  std::string wrong() const;
};

ZeroResult run_zero(const ZeroFlags& flags, const ZeroRow& row);

// The row's step as a worker, in place of a run.
void serve_zero(const ZeroFlags& flags, const ZeroRow& row);

}  // namespace lockstep::parallel_bench
