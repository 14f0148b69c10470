// The program scaling: results, text, records, exit status.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "bench/scaling/flags.h"
#include "bench/scaling/measure.h"
#include "core/record.h"
#include "trainer/train/options.h"

namespace lockstep::scaling {

// The results of one layout.

struct Result {
  Mode mode = Mode::weak;
  std::string name;  // "dp=2,zero=1"
  trainer::TrainOptions options;
  bool oversubscribed = false;
  LayoutTimes times;
  double measured_ms = 0;                 // median
  std::optional<double> efficiency = {};  // relative to one rank in the same mode

  // Mean over ranks; the parts sum to the step. The last, "around", exists only for the measured step.
  core::NamedNumbers isolated_parts;
  core::NamedNumbers contended_parts;
  core::NamedNumbers measured_parts;

  double isolated_ms() const { return static_cast<double>(times.isolated.makespan_ps) / 1e9; }
  double contended_ms() const { return static_cast<double>(times.contended.makespan_ps) / 1e9; }
  bool simulated() const { return times.samples_ms.empty(); }
  double tokens_per_s() const {
    return static_cast<double>(options.tokens_per_step()) / (simulated() ? isolated_ms() : measured_ms) * 1e3;
  }
};

Result result_of(Mode mode, const trainer::TrainOptions& options, LayoutTimes times);

// A layout that was not run, from one that was: its step is simulated (measure.h), with isolated times only.
Result simulated_result(Mode mode, const trainer::TrainOptions& many, const Result& two);

// Measured slowdowns as rows: the slowed piece, the concurrent work, and the number of ranks.
struct SlowdownRow {
  std::string of;
  std::string beside;
  std::int32_t ranks = 1;
  double factor = 1;
  std::size_t samples = 0;
};
std::vector<SlowdownRow> rows_of(const Slowdowns& slowdowns, std::int32_t ranks);

// The text that scaling prints.

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores);
std::string columns_text();
std::string row_text(const Result& result);
// Differences of the measured step from both predictions, by part.
std::string gap_text(const Result& result);
// Slowdowns of pieces that run concurrently.
std::string slowdowns_text(const Result& result);
std::string closing_text();

// Results as records (docs/record_format.md).

// `most_ranks`: maximum over layouts.
core::RunRecord run_record(const ScalingFlags& flags, const trainer::TrainOptions& options, int most_ranks);
core::RunRecord simulated_run(core::RunRecord run);  // the run of simulated layouts in the same process
core::ScalingRecord scaling_record(const core::RunRecord& run, const Result& result);

// Main program of scaling: from flags to exit status.

int run_scaling(const ScalingFlags& flags, const program::Print& print);

}  // namespace lockstep::scaling
