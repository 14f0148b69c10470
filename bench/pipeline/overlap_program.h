// main() of overlap_perf.
#pragma once

namespace lockstep::pipeline {

// Parses, runs, prints; returns the exit status: 0 or core::Failure's.
int overlap_main(int argc, char** argv);

}  // namespace lockstep::pipeline
