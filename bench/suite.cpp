// Runs a suite of sweeps and keeps their records: suite --suite quick --out out/records
#include "bench/suite/suite.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/error.h"

namespace {

int run(int argc, char** argv) {
  std::string name = "quick";
  lockstep::suite::SuiteOptions options;
  CLI::App app("Runs a suite of sweeps and keeps their records", "suite");
  app.add_option("--suite", name, "quick, or a file of lines NAME WEIGHT COMMAND")->capture_default_str();
  app.add_option("--out", options.folder, "folder of the record files")->capture_default_str();
  app.add_option("--time-budget", options.time_budget_s, "seconds, of the whole suite")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw lockstep::core::usage_error(error.what());
  }
  return lockstep::suite::run_suite(
      name == "quick" ? lockstep::suite::quick_suite() : lockstep::suite::load_suite(name), options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lockstep::core::Error& error) {
    std::fprintf(stderr, "suite: %s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "suite: %s\n", error.what());
    return 1;
  }
}
