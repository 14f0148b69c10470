#include "bench/scaling/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("scaling", [&] {
    return lockstep::scaling::run_scaling(lockstep::scaling::parse_scaling_flags(argc, argv),
                                          lockstep::program::to_stdout);
  });
}
