#include "bench/scaling/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("scaling", [&] {
    using namespace lockstep::scaling;
    return run_scaling(parse_scaling_flags(argc, argv), lockstep::program::to_stdout);
  });
}
