// A suite: a list of sweeps, and of runs of pipeline_perf, overlap_perf, simulate, mini_train, tp_linear_bench and
// scaling, as the command lines that would run them one by one, run in turn in one process.
#pragma once

#include <string>
#include <vector>

namespace lockstep::suite {

// "all_reduce_perf --ranks 2,4,8 -b 8 -e 16M -f 4 --algo ring,two_shot", and its share of the suite's time. (What a run
// of another program takes follows from its flags; its weight says what to keep for it.)
struct SuiteLine {
  std::string name;  // of its record file
  std::string command;
  double weight;
};

using Suite = std::vector<SuiteLine>;

// The suite of ci/quickstart.sh: ring against tree and the rest on this machine and on an emulated cluster.
Suite quick_suite();

// A file of lines "NAME WEIGHT COMMAND"; '#' begins a comment. Errors name the file, the line and what is allowed.
Suite load_suite(const std::string& path);

struct SuiteOptions {
  std::string folder = "out/records";  // one record file a line, NAME.jsonl
  double time_budget_s = 120;          // of the whole suite
  bool show_progress = true;           // on stderr
};

// Returns the exit status of the worst line. Every line is parsed before the first is run.
int run_suite(const Suite& suite, const SuiteOptions& options);

}  // namespace lockstep::suite
