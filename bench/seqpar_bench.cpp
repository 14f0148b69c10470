#include "bench/context/program.h"

namespace lockstep::context_bench {
namespace {

int run(int argc, char** argv) {
  ContextFlags flags = parse_context_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.ranks = {mpi->placement().num_ranks};
    return run_context(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::context_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("seqpar_bench", [&] { return lockstep::context_bench::run(argc, argv); });
}
