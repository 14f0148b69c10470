#include "bench/simulate/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("simulate", [&] {
    return lockstep::simulate::run_simulate(lockstep::simulate::parse_simulate_flags(argc, argv),
                                            lockstep::program::to_stdout);
  });
}
