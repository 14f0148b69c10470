#include "bench/data_parallel/zero.h"

namespace lockstep::parallel_bench {
namespace {

int run(int argc, char** argv) {
  ZeroFlags flags = parse_zero_flags(argc, argv);
  return program::run_in_place(flags.step.place, argc, argv, flags.step.options.timeout,
                               [&](transports::MpiWorld* mpi) {
                                 place_in(mpi, flags.step);
                                 return run_zero_bench(flags, program::print_of(mpi));
                               });
}

}  // namespace
}  // namespace lockstep::parallel_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("zero_bench", [&] { return lockstep::parallel_bench::run(argc, argv); });
}
