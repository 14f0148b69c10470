// The program simulate: its command line and commands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "schedules/step/step.h"

namespace lockstep::simulate {

// The command line of simulate.

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
  std::string chakra;        // prefix of a Chakra trace's files; empty: none
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
SimulateFlags parse_simulate_flags(int argc, const char* const* argv);

// The commands of simulate, selected by its first argument.

struct Command {
  const char* name;
  const char* question;  // that the command answers
  int (*run)(int argc, const char* const* argv, const program::Print& print);
};

std::span<const Command> commands();
// A usage Error that lists the commands.
core::Error no_such_command(std::string_view word);

// `argv`: simulate NAME --flag value .... Each returns the exit status and throws core::Error.
int run_scaling(int argc, const char* const* argv, const program::Print& print);
int run_map(int argc, const char* const* argv, const program::Print& print);
int run_memory(int argc, const char* const* argv, const program::Print& print);
int run_recompute(int argc, const char* const* argv, const program::Print& print);
int run_tp_boundary(int argc, const char* const* argv, const program::Print& print);
int run_order(int argc, const char* const* argv, const program::Print& print);
int run_bubbles(int argc, const char* const* argv, const program::Print& print);
int run_clocks(int argc, const char* const* argv, const program::Print& print);
int run_sensitivity(int argc, const char* const* argv, const program::Print& print);
int run_replay(int argc, const char* const* argv, const program::Print& print);

// Writes PREFIX.0.et, PREFIX.1.et, ... and PREFIX.groups.json (schedules/step/chakra.h). `step`: all ranks.
void write_chakra(const std::string& prefix, const schedules::Step& step);

// simulate plan: the best layouts for a number of devices, and why the others are slower.

int run_plan(const SimulateFlags& flags, const program::Print& print);

// main() of simulate.

// Returns the exit status; throws core::Error.
int run_simulate(const SimulateFlags& flags, const program::Print& print);

}  // namespace lockstep::simulate
