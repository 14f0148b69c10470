// main() of all_reduce_perf and of the other programs with nccl-tests' names: a sweep of the collective that matches
// the name under which it is called. These names are symbolic links to one binary.
#include <algorithm>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/sweep.h"
#include "collectives/transports/mpi_transport.h"
#include "core/provenance.h"
#include "core/ranks.h"

namespace lockstep {
namespace {

// Under mpirun, ranks on GPUs are its processes; without it, threads of this process.
bool wants_mpi(const sweep::SweepFlags& flags) {
  return std::any_of(flags.transports.begin(), flags.transports.end(), [](const std::string& transport) {
    return transport == "mpi" || (sweep::on_gpus(transport) && core::started_by_mpi());
  });
}

// Threads of a process send messages themselves; on GPUs they only synchronize, which one thread does for all.
transports::MpiThreads threads_for(const sweep::SweepFlags& flags) {
  const bool messages = std::find(flags.transports.begin(), flags.transports.end(), "mpi") != flags.transports.end();
  return messages && flags.ranks_per_process() > 1 ? transports::MpiThreads::multiple
                                                   : transports::MpiThreads::funneled;
}

int run(const std::string& name, int argc, char** argv) {
  const bool has_peers = core::started_processes() > 1 && transports::mpi_is_built();
  const sweep::SweepFlags flags =
      sweep::parse_sweep_flags(sweep::kind_of_program(name), argc, argv, has_peers ? "mpi" : "local");
  const sweep::SweepEnvironment environment = sweep::read_environment(flags);
  const sweep::SweepOutput output{.print = program::to_stdout};
  if (!wants_mpi(flags)) return sweep::run_sweep(flags, environment, nullptr, output);
  return transports::run_mpi_program(
      argc, argv, core::source().revision, std::chrono::seconds(flags.timeout_s),
      [&](transports::MpiWorld& mpi) { return sweep::run_sweep(flags, environment, &mpi, output); },
      threads_for(flags));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::string path = argv[0];
  const std::string name = path.substr(path.find_last_of('/') + 1);
  return lockstep::program::exit_status_of(name, [&] { return lockstep::run(name, argc, argv); });
}
