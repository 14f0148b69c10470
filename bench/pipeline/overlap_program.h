// overlap_perf.
#pragma once

#include "bench/pipeline/output.h"
#include "bench/pipeline/overlap_flags.h"

namespace lockstep::pipeline {

// Runs all that the flags ask for, prints a table, writes the files; returns the exit status. Throws core::Error.
int run_overlaps(const OverlapFlags& flags, const Print& print);

// main(): parses, runs, prints; returns the exit status: 0 or core::Failure's.
int overlap_main(int argc, char** argv);

}  // namespace lockstep::pipeline
