// The command line of simulate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/program/command_line.h"
#include "bench/program/program.h"

namespace lockstep::simulate {

enum class Task : std::uint8_t { predict, plan, calibrate, list, serve };

struct SimulateFlags : program::Invocation {
  Task task = Task::predict;

  std::string model = "gpt3-175b";
  std::string machine = "dgx-a100";
  std::string layout = "tp=8,pp=8,dp=1,batch=64";  // the predicted layout; with plan: options that all layouts share
  std::vector<std::string> sweep;                  // "tp=2:4:8", each crossed with the others
  bool folded = false;                             // a layer is one kernel
  bool all_ranks = false;                          // simulate every rank
  bool plans = false;                              // collectives message by message

  std::int64_t gpus = 64;    // plan only
  std::int64_t batch = 256;  // plan only; sequences per step
  std::string schedules = "1f1b,interleaved,zb_h1,zb_h2";
  int top = 10;

  std::string records;       // calibrate only
  bool has_machine = false;  // --machine was given: calibrate fits NCCL's numbers in it
  std::string output;        // file for the description that calibrate writes; empty: stdout
  std::string trace_file;    // empty: none
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
SimulateFlags parse_simulate_flags(int argc, const char* const* argv);

}  // namespace lockstep::simulate
