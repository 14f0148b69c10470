#include "bench/simulate/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("simulate", [&] {
    using namespace lockstep::simulate;
    return run_simulate(parse_simulate_flags(argc, argv), lockstep::program::to_stdout);
  });
}
