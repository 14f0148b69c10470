#include "bench/parallel_layers/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tp_linear_bench", [&] {
    return lockstep::layer_bench::run_layers(lockstep::layer_bench::parse_layer_flags(argc, argv),
                                             lockstep::program::to_stdout);
  });
}
