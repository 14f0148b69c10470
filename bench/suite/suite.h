// Suites: lists of programs that run in a stated time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::suite {

// The text of claims.suite, embedded in the program by CMakeLists.txt.
std::string_view embedded_claims_suite();

// A suite: command lines of this project's programs, run one after another as child processes, with a record file each.

// A program beside this one and its flags: "all_reduce_perf --ranks 2,4,8 --algo ring,two_shot --time-budget
// {seconds}". {seconds} is replaced by the line's share of the suite's time; for a line without it, the weight only
// reserves time.
struct SuiteLine {
  std::string name;  // name of its record file
  double weight;
  std::string command;
};

using Suite = std::vector<SuiteLine>;

// The suite of ci/quickstart.sh, which fills each page of the report.
Suite quick_suite();

// The lines of claims.suite, whose records decide the claims of claims.json (docs/claims.md).
Suite claims_suite();

// Reads a file of lines "NAME WEIGHT COMMAND"; '#' begins a comment. Errors name the file, the line and what is
// allowed.
Suite load_suite(const std::string& path);

// The suite as the text of such a file.
std::string text_of(const Suite& suite);

struct SuiteOptions {
  std::string programs;                // folder of the programs
  std::string folder = "out/records";  // NAME.jsonl: a line's records; NAME.txt: its output
  double time_budget_s = 120;          // for the whole suite
  double line_timeout_s = 300;         // deadline of each line's program
};

// Returns the worst exit status of all lines. Failed lines are named on stderr, and the others still run. Throws a
// usage Error before the first line runs if a line has no command or its program does not exist.
int run_suite(const Suite& suite, const SuiteOptions& options);

}  // namespace lockstep::suite
