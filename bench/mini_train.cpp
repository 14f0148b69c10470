#include "bench/trainer/program.h"

namespace lockstep {
namespace {

int run(int argc, char** argv) {
  const mini_train::TrainFlags flags = mini_train::parse_train_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.options.timeout, [&](transports::MpiWorld* mpi) {
    return mini_train::run_mini_train(flags, program::to_stdout, mpi);
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("mini_train", [&] { return lockstep::run(argc, argv); });
}
