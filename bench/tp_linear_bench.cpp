#include "bench/parallel_layers/program.h"

namespace lockstep::layer_bench {
namespace {

int run(int argc, char** argv) {
  LayerFlags flags = parse_layer_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.ranks = {mpi->placement().num_ranks};
    return run_layers(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::layer_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tp_linear_bench", [&] { return lockstep::layer_bench::run(argc, argv); });
}
