// A program as a process of its own, with a deadline.
#pragma once

#include <string>
#include <vector>

#include "core/wait.h"

namespace lockstep::suite {

struct Ended {
  int status = 0;  // exit status; 128 and the signal's number, as shells have it, for one that a signal ended
  std::string
      how;  // "ended with status 7", "was ended by signal 11 (Segmentation fault)", "was killed, as it took ..."
};

// Runs words[0] with the words as its arguments; what it prints goes to `output_file`, which is replaced. At the
// deadline it is killed. It ends with this process. Throws an Error if the file cannot be written or the program not be
// started.
Ended run_process(const std::vector<std::string>& words, const std::string& output_file, core::Deadline deadline);

}  // namespace lockstep::suite
