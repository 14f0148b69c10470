#include "bench/parallel/zero_program.h"

int main(int argc, char** argv) {
  return lockstep::parallel_bench::zero_bench_main(argc, argv);
}
