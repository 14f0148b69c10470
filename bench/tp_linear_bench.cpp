#include "bench/tp_linear/program.h"

namespace lockstep::tp_linear {
namespace {

int run(int argc, char** argv) {
  TpLinearFlags flags = parse_tp_linear_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.ranks = {mpi->placement().num_ranks};
    return run_tp_linear(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::tp_linear

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tp_linear_bench", [&] { return lockstep::tp_linear::run(argc, argv); });
}
