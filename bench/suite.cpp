// Runs a list of our programs and keeps their records: suite --suite quick --out out/records
#include "bench/suite/suite.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "core/error.h"

namespace {

int run(int argc, char** argv) {
  std::string name = "quick";
  bool list = false;
  lockstep::suite::SuiteOptions options;
  options.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  CLI::App app("Runs a list of the programs beside it, one after another, and keeps their records", "suite");
  app.add_option("--suite", name, "quick, or a file of lines NAME WEIGHT COMMAND (see --list)")->capture_default_str();
  app.add_flag("--list", list, "print the suite as such a file, and run nothing");
  app.add_option("--out", options.folder, "folder of the record files")->capture_default_str();
  app.add_option("--time-budget", options.time_budget_s,
                 "seconds for the whole suite, shared among the lines with {seconds} in them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--timeout", options.line_timeout_s, "seconds after which a line's program is killed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw lockstep::core::usage_error(error.what());
  }
  const auto suite = name == "quick" ? lockstep::suite::quick_suite() : lockstep::suite::load_suite(name);
  if (!list) return lockstep::suite::run_suite(suite, options);
  std::fputs(lockstep::suite::text_of(suite).c_str(), stdout);
  return 0;
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
