// The program ddp_overlap_bench: text, records, exit status.
#pragma once

#include <string>
#include <vector>

#include "bench/parallel/ddp_flags.h"
#include "bench/parallel/ddp_run.h"
#include "bench/program/program.h"
#include "core/record.h"

namespace lockstep::parallel_bench {

// The text that ddp_overlap_bench prints, as pure functions of the results.

std::string ddp_heading_text(const DdpFlags& flags);
std::string ddp_row_text(const DdpFlags& flags, const DdpCase& one, const DdpResult& result);
std::string ddp_ending_text(const std::vector<DdpCase>& cases, const std::vector<DdpResult>& results);

std::string link_text(const Link& link);  // "10 us, 2 GB/s"

// Results of ddp_overlap_bench as records (docs/record_format.md).

// Each row is a run of its own because a run has exactly one link: emulated if the row has one, measured otherwise.
void write_ddp_records(core::RecordWriter& writer, const DdpFlags& flags, const DdpCase& one, const DdpResult& result);

// Main program of ddp_overlap_bench.

// Runs every case that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. With --serve it serves timed steps to the gate instead. Throws core::Error. Under
// mpirun all ranks call it; rank 0 prints and writes.
int run_ddp_overlap(const DdpFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
