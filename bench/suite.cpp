// suite: runs a list of this project's programs and keeps their records. Example: suite --suite quick --out out/records
#include "bench/suite/suite.h"

#include <array>
#include <filesystem>

#include "bench/program/command_line.h"
#include "bench/program/program.h"

namespace lockstep {
namespace {
using program::FlagValue;

struct SuiteFlags {
  std::string suite = "quick";
  bool list = false;
  suite::SuiteOptions options;
};
using Flag = program::FlagOf<SuiteFlags>;

constexpr double kLongestS = 1e9;

const std::array kFlags{
    Flag{"--suite", "quick", "quick; claims (docs/claims.md); or a file of lines NAME WEIGHT COMMAND (see --list)",
         [](SuiteFlags& f, const FlagValue& v) { f.suite = file_name(v); }},
    Flag{"--out", "out/records", "folder of the record files",
         [](SuiteFlags& f, const FlagValue& v) { f.options.folder = file_name(v); }},
    Flag{"--time-budget", "120", "seconds for the whole suite, shared among the lines with {seconds} in them",
         [](SuiteFlags& f, const FlagValue& v) { f.options.time_budget_s = v.number(0, kLongestS); }},
    Flag{"--timeout", "300", "seconds after which a line's program is killed",
         [](SuiteFlags& f, const FlagValue& v) { f.options.line_timeout_s = v.number(0, kLongestS); }},
};

int run(int argc, char** argv) {
  SuiteFlags flags;
  flags.options.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  program::CommandLine line(
      "Runs a list of the programs in its own folder, one after the other, and keeps their records");
  declare_all(line, kFlags, "Options");
  line.add_switch("--list", flags.list, "print the suite as such a file and exit", "Options");
  line.parse(argc, argv);
  read_all(line, kFlags, flags);
  program::refuse_peers("programs run one after the other", "no mpirun");
  const auto suite = flags.suite == "quick"    ? suite::quick_suite()
                     : flags.suite == "claims" ? suite::claims_suite()
                                               : suite::load_suite(flags.suite);
  if (!flags.list) return suite::run_suite(suite, flags.options);
  program::to_stdout(suite::text_of(suite));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("suite", [&] { return lockstep::run(argc, argv); });
}
