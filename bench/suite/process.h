// Runs a program as a child process with a deadline.
#pragma once

#include <string>
#include <vector>

#include "core/wait.h"

namespace lockstep::suite {

struct Ended {
  int status = 0;  // exit status; 128 + signal number, as in shells, if a signal ended the process
  std::string
      how;  // "ended with status 7", "was ended by signal 11 (Segmentation fault)", "was killed, as it took ..."
};

// Runs words[0] with the words as its arguments and its output in `output_file`, which is replaced. The child is killed
// at the deadline, and when this process ends. Throws an Error if the file cannot be written or the program cannot be
// started.
Ended run_process(const std::vector<std::string>& words, const std::string& output_file, core::Deadline deadline);

}  // namespace lockstep::suite
