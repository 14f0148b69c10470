#include "bench/parallel_layers/program.h"

int main(int argc, char** argv) {
  return lockstep::layer_bench::tp_linear_main(argc, argv);
}
