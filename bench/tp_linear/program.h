// The program tp_linear_bench: table, records, exit status.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/program/program.h"
#include "bench/tp_linear/flags.h"
#include "bench/tp_linear/run.h"
#include "core/record.h"

namespace lockstep::tp_linear {

// The text that tp_linear_bench prints.

std::string heading_text(const TpLinearFlags& flags);
std::string row_text(const TpLinearFlags& flags, const Case& one, const Form& form);

// Sums over all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  // With one tile, by way; and with the fastest number of tiles of each layer.
  std::array<double, kNumWays> in_one_us = {};
  double in_best_us = 0;
};
void add_to(Totals& totals, const std::vector<Form>& forms);
std::string ending_text(const Totals& totals);

// Results of tp_linear_bench as records (docs/record_format.md).

core::RunRecord run_record(const TpLinearFlags& flags);
core::LayerRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& one,
                               const Form& form);

// Main program of tp_linear_bench.

// Runs every case that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_tp_linear(const TpLinearFlags& flags, const program::Print& print);

}  // namespace lockstep::tp_linear
