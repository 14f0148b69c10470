#include "bench/parallel/ddp_program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("ddp_overlap_bench", [&] {
    return lockstep::parallel_bench::run_ddp_program(lockstep::parallel_bench::parse_ddp_flags(argc, argv), argc, argv);
  });
}
