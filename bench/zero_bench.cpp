#include "bench/parallel/zero_program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("zero_bench", [&] {
    return lockstep::parallel_bench::run_zero_bench(lockstep::parallel_bench::parse_zero_flags(argc, argv),
                                                    lockstep::program::to_stdout);
  });
}
