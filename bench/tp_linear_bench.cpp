#include "bench/parallel_layers/program.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tp_linear_bench", [&] {
    using namespace lockstep::layer_bench;
    return run_layers(parse_layer_flags(argc, argv), lockstep::program::to_stdout);
  });
}
