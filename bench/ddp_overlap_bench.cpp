#include "bench/data_parallel/ddp.h"

int main(int argc, char** argv) {
  namespace bench = lockstep::parallel_bench;
  return bench::run_placed("ddp_overlap_bench", argc, argv, bench::parse_ddp_flags, bench::run_ddp_overlap);
}
