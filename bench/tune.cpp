// Writes the table by which `--algo auto` chooses on this machine: tune --ranks 2,4,8
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/tuner/tuner.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace {

using lockstep::core::Error;
using lockstep::tuner::TunerOptions;

TunerOptions parse(int argc, char** argv) {
  TunerOptions options;
  options.path = lockstep::tuning::default_table_path();
  std::vector<std::string> collectives{"all_reduce", "reduce_scatter", "all_gather",
                                       "broadcast",  "reduce",         "all_to_all"};
  CLI::App app("Measures all algorithms and keeps the fastest for --algo auto", "tune");
  app.add_option("--transport", options.transport, "local, or mpi under mpirun")
      ->check(CLI::IsMember({"local", "mpi"}))
      ->capture_default_str();
  app.add_option("--collectives", collectives, "their names")->delimiter(',')->capture_default_str();
  app.add_option("--ranks", options.ranks, "numbers of ranks")->capture_default_str();
  app.add_option("-b,--minbytes", options.min_bytes, "smallest message")->capture_default_str();
  app.add_option("-e,--maxbytes", options.max_bytes, "largest message")->capture_default_str();
  app.add_option("-f,--stepfactor", options.step_factor, "from size to size")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--time-budget", options.time_budget_s, "seconds")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--output", options.path, "the table's file")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));  // NOLINT(concurrency-mt-unsafe): no rank has started
  } catch (const CLI::ParseError& error) {
    throw lockstep::core::usage_error(error.what());
  }
  for (const std::string& name : collectives) options.kinds.push_back(lockstep::collectives::parse_kind(name));
  return options;
}

int run(int argc, char** argv) {
  const TunerOptions options = parse(argc, argv);
  if (options.transport == "local") return lockstep::tuner::tune(options, nullptr);
  return lockstep::transports::run_mpi_program(argc, argv, std::chrono::seconds(60),
                                               [&](auto& mpi) { return lockstep::tuner::tune(options, &mpi); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "tune: %s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tune: %s\n", error.what());
    return 1;
  }
}
