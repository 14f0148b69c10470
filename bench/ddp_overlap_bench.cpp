#include "bench/parallel/ddp_program.h"

int main(int argc, char** argv) {
  return lockstep::parallel_bench::ddp_overlap_main(argc, argv);
}
