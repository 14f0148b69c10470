// The program moe_bench: table, records, exit status.
#pragma once

#include <string>

#include "bench/experts/flags.h"
#include "bench/experts/run.h"
#include "bench/program/program.h"
#include "core/record.h"

namespace lockstep::experts_bench {

// The table of moe_bench.

std::string heading_text(const ExpertsFlags& flags);
std::string row_text(const ExpertsFlags& flags, const Case& one, const Result& result);
std::string ending_text(int rows, int wrong_rows);

// Results of moe_bench as records (docs/record_format.md).

core::RunRecord run_record(const ExpertsFlags& flags);
core::ExpertsRecord experts_record(const core::RunRecord& run, const ExpertsFlags& flags, const Case& one,
                                   const Result& result);

// Main program of moe_bench.

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error.
int run_experts(const ExpertsFlags& flags, const program::Print& print);

}  // namespace lockstep::experts_bench
