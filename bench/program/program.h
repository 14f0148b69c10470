// The frame of each program: its command line, its output to text and files, its exit status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/transports/paced_link.h"
#include "core/record.h"

namespace lockstep::program {

// How a program was called; base of its flags.
struct Invocation {
  std::string program;               // without its folder
  std::vector<std::string> command;  // as given, the program without its folder
  std::string json_file;             // for records; empty: none

  void set_command(int argc, const char* const* argv);
};

using Print = std::function<void(const std::string& text)>;
void to_stdout(const std::string& text);  // flushed at once

// Writes the file completely or not at all.
void write_file(const std::string& path, const std::string& text);

// Throws a usage Error if `path` is given and there are several rows (or "schedules", ...) to write to it.
void check_single(const char* flag, const std::string& path, std::size_t rows, const char* name);

// Throws a usage Error if mpirun has started this process and others, each of which would print and write what the
// others do: `why` says what makes each process a run of its own.
void refuse_peers(const std::string& why, const std::string& allowed);

// Returns the exit status of `run`, or the failure's after one line on stderr. Prints the help or another text if it
// was requested. Under mpirun, what all processes would print is printed once.
int exit_status_of(const std::string& program, const std::function<int()>& run);

// An emulated link in a run's record; a part without limit is left out.
core::LinkRecord link_record(const transports::LinkSpec& link);

}  // namespace lockstep::program
