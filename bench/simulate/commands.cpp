#include "bench/simulate/commands.h"

#include <array>

#include "bench/simulate/flags.h"
#include "bench/simulate/program.h"

namespace lockstep::simulate {
namespace {

int run_plan_command(int argc, const char* const* argv, const program::Print& print) {
  return run_simulate(parse_simulate_flags(argc, argv), print);
}

constexpr std::array kCommands{
    Command{"plan", "Which layout of N devices is fastest?", run_plan_command},
    Command{"scaling", "How far does a layout scale, weak and strong, and what stops it?", run_scaling},
    Command{"map", "Which kind of parallelism wins, by model size and network bandwidth?", run_map},
    Command{"memory", "How much memory per rank does each ZeRO stage need on N ranks?", run_memory},
    Command{"recompute", "How much memory does recomputation save, and for how much time?", run_recompute},
    Command{"tp-boundary", "What does tensor parallelism cost beyond a node?", run_tp_boundary},
    Command{"order", "Which kind of parallelism belongs inside a node, and what does another order cost?", run_order},
    Command{"sensitivity", "Which figure of the machine changes the step time most?", run_sensitivity},
    Command{"bubbles", "How full does a second-order optimizer make the bubbles of pipelines?", run_bubbles},
    Command{"clocks", "How much energy do lower clocks save where a pipeline waits anyway, and for how much time?",
            run_clocks},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

std::string commands_text() {
  std::string text = "Commands, each with its own --help:";
  for (const Command& command : kCommands) {
    text += "\n  simulate " + std::string(command.name) + ": " + command.question;
  }
  return text;
}

}  // namespace lockstep::simulate
