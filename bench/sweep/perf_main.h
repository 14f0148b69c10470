// main() of the *_perf programs.
#pragma once

#include "collectives/collective.h"

namespace lockstep::sweep {

// Parses, runs, prints; returns the exit status: 0, nccl-tests' codes, or core::Failure's.
int perf_main(collectives::Kind kind, int argc, char** argv);

}  // namespace lockstep::sweep
