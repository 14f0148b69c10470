#include "bench/sweep/perf_main.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "bench/sweep/flags.h"
#include "bench/sweep/sweep.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep::sweep {
namespace {

int report_error(const std::string& program, const core::Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
  return error.exit_status();
}

// Ranks on GPUs may be mpirun's or threads of this process: mpirun's where there are some.
bool wants_mpi(const SweepFlags& flags) {
  return std::any_of(flags.transports.begin(), flags.transports.end(), [](const std::string& transport) {
    return transport == "mpi" || (on_gpus(transport) && transports::started_by_mpi());
  });
}

int run_flags(const SweepFlags& flags, int argc, char** argv) {
  const SweepEnvironment environment = read_environment(flags);
  if (!wants_mpi(flags)) return run_sweep(flags, environment, nullptr, to_stdout());
  if (!transports::mpi_is_built()) throw core::Error(core::Failure::not_built, transports::mpi_absence());
  return transports::run_mpi_program(argc, argv, std::chrono::seconds(flags.timeout_s), [&](transports::MpiWorld& mpi) {
    return run_sweep(flags, environment, &mpi, to_stdout());
  });
}

}  // namespace

int perf_main(collectives::Kind kind, int argc, char** argv) {
  std::string program = argv[0];
  program.erase(0, program.find_last_of('/') + 1);
  try {
    const auto parsed = parse_sweep_flags(kind, argc, argv);
    if (const auto* help = std::get_if<HelpRequested>(&parsed)) {
      std::fputs(help->text.c_str(), stdout);
      return 0;
    }
    return run_flags(std::get<SweepFlags>(parsed), argc, argv);
  } catch (const core::Error& error) {
    return report_error(program, error);
  } catch (const std::exception& error) {
    return report_error(program, core::Error(core::Failure::internal, error.what()));
  }
}

}  // namespace lockstep::sweep
