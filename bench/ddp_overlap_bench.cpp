#include "bench/parallel/ddp_program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("ddp_overlap_bench", [&] {
    using namespace lockstep::parallel_bench;
    return run_ddp_program(parse_ddp_flags(argc, argv), argc, argv);
  });
}
