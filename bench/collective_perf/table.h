// Text that a sweep prints: byte for byte that of nccl-tests 2.19.6, so that scripts for one read the other. Columns
// that nccl-tests does not have are to the right of its own. Pure functions; they print nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/trial.h"
#include "core/statistics.h"

namespace lockstep::sweep {

// One rank's line under "# Using devices".
struct DeviceLine {
  int rank;
  int process_id;
  std::string host;
  int device;            // core or GPU number
  std::string bus_id;    // "0000:1b:00"; for cores "cpu"
  std::string name;      // "NVIDIA H100 80GB HBM3"
  bool has_mps = false;  // MPS: work of several processes runs on it at the same time
};

struct Heading {
  SweepFlags flags;
  std::string version;  // Lockstep's version
  int threads = 1;
  int gpus = 1;
  bool timed_by_events = false;    // samples are timed by CUDA events; else by the host's clock
  std::vector<std::string> notes;  // lines of ours, each becomes "# <note>": emulated link, oversubscribed, ...
  std::vector<DeviceLine> devices;
};

// Text from the version line to the last device line.
std::string heading_text(const Heading& heading);

// Columns that nccl-tests does not have.
struct Columns {
  bool per_iteration = false;  // -I
  bool timestamps = false;     // -S
  bool cpu_time = false;       // -C
  bool choice = false;         // ranks and algorithm, if the sweep varies them
  bool transport = false;      // transport, if several run in rotation
  bool explain = false;        // --explain
  bool links = false;          // --explain with emulated links
  bool stats = false;          // --stats
};

// One placement of a row: out of place or in place.
struct Measured {
  double time_us = 0;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  std::optional<std::int64_t> wrong;  // nothing (printed as N/A) if unchecked
  bool failed = false;                // shown as N/A N/A N/A FAILED
  bool absent = false;                // the collective has no such placement: all shown as N/A
  // Times of the iterations, in microseconds: -I prints min, max, p99 and the coefficient of variation, --stats the
  // percentiles.
  core::Summary samples;
  double cv_percent() const { return samples.mean > 0 ? 100 * samples.stddev / samples.mean : 0; }
  std::optional<double> measured_over_predicted;  // --explain
};

struct Row {
  core::RowRecord of;  // the row's operation, transport and algorithm
  Measured out_of_place;
  Measured in_place;
  std::string timestamp;          // "2026-01-31 23:59:59"
  std::optional<PlanFacts> plan;  // --explain
};

std::string table_heading_text(const Columns& columns);
std::string row_text(const Columns& columns, const Row& row);

struct Footing {
  std::string program;
  int wrong_rows = 0;  // rows with wrong data and rows that failed
  double average_busbw_gbps = 0;
  std::optional<double> min_busbw_gbps;  // NCCL_TESTS_MIN_BW
};

std::string footing_text(const Footing& footing);
bool below_minimum(const Footing& footing);  // true if the average is below 0.9 of the minimum

// Formats a number in `width` characters with as many decimals (at most two) as fit.
std::string number_text(double value, int width);

// Local time now, as -S prints it.
std::string timestamp_now();

}  // namespace lockstep::sweep
