#include "bench/data_parallel/ddp.h"

namespace lockstep::parallel_bench {
namespace {

int run(int argc, char** argv) {
  DdpFlags flags = parse_ddp_flags(argc, argv);
  return program::run_in_place(flags.step.place, argc, argv, flags.step.options.timeout,
                               [&](transports::MpiWorld* mpi) {
                                 place_in(mpi, flags.step);
                                 return run_ddp_overlap(flags, program::print_of(mpi));
                               });
}

}  // namespace
}  // namespace lockstep::parallel_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("ddp_overlap_bench",
                                           [&] { return lockstep::parallel_bench::run(argc, argv); });
}
