// A suite: command lines of our programs, run one after another as processes of their own, with a record file each.
#pragma once

#include <string>
#include <vector>

namespace lockstep::suite {

// A program beside this one and its flags: "all_reduce_perf --ranks 2,4,8 --algo ring,two_shot --time-budget
// {seconds}". {seconds} stands for the line's share of the suite's time; a line without it takes what its flags say,
// and its weight says what to keep for it.
struct SuiteLine {
  std::string name;  // of its record file
  double weight;
  std::string command;
};

using Suite = std::vector<SuiteLine>;

// The suite of ci/quickstart.sh: a page of the report for each thing that is measured.
Suite quick_suite();

// The lines of claims.suite, whose records settle the claims of claims.json (docs/claims.md).
Suite claims_suite();

// A file of lines "NAME WEIGHT COMMAND"; '#' begins a comment. Errors name the file, the line and what is allowed.
Suite load_suite(const std::string& path);

// The suite as such a file.
std::string text_of(const Suite& suite);

struct SuiteOptions {
  std::string programs;                // the folder that they are in
  std::string folder = "out/records";  // NAME.jsonl: a line's records; NAME.txt: what the program printed
  double time_budget_s = 120;          // of the whole suite
  double line_timeout_s = 300;         // after which a line's program is killed
};

// Returns the exit status of the worst line. A line that fails is named on stderr, and the others are run all the same.
// Throws a usage Error before the first is run if a line has no command, or its program is not there.
int run_suite(const Suite& suite, const SuiteOptions& options);

}  // namespace lockstep::suite
