// pipeline_perf.
#pragma once

#include "bench/pipeline/flags.h"
#include "bench/pipeline/output.h"

namespace lockstep::pipeline {

// Runs all that the flags ask for, prints a table, writes the files; returns the exit status. Throws core::Error.
int run_pipeline(PipelineFlags flags, const Print& print);

// main(): parses, runs, prints; returns the exit status: 0 or core::Failure's.
int pipeline_main(int argc, char** argv);

}  // namespace lockstep::pipeline
