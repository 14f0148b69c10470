#include "bench/data_parallel/zero.h"

int main(int argc, char** argv) {
  namespace bench = lockstep::parallel_bench;
  return bench::run_placed("zero_bench", argc, argv, bench::parse_zero_flags, bench::run_zero_bench);
}
