// main() of simulate.
#pragma once

namespace lockstep::simulate {

// Parses, runs, prints; returns the exit status: 0 or core::Failure's.
int simulate_main(int argc, char** argv);

}  // namespace lockstep::simulate
