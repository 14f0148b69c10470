// The commands of simulate, selected by its first argument.
#pragma once

#include <span>
#include <string>

#include "bench/program/program.h"

namespace lockstep::simulate {

struct Command {
  const char* name;
  const char* question;  // that the command answers
  int (*run)(int argc, const char* const* argv, const program::Print& print);
};

std::span<const Command> commands();
// For the help of simulate: one line per command.
std::string commands_text();

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

}  // namespace lockstep::simulate
