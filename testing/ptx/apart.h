// Runs cases in processes of their own: a kernel that fails leaves nothing behind, and one that hangs is ended.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "testing/ptx/device_cases.h"
#include "testing/ptx/interpreter.h"

namespace lockstep::ptx {

struct Job {
  const DeviceCase* device_case = nullptr;
  Options options = {};
  Change change = {};
  double limit_s = 120;  // CPU time
};

struct Result {
  std::string errors;  // "" if the case is right
  bool timed_out = false;
  bool reached_mutant = false;
  double cpu_s = 0;
  std::map<std::string, Counts> counts;  // by entry that ran
  std::map<std::string, EntryRuns> runs;

  std::uint64_t warp_instructions() const;
};

// Calls done(index, result) as jobs end, with at most `workers` processes at a time.
void run_apart(Library& library, const std::vector<Job>& jobs, int workers,
               const std::function<void(std::size_t, const Result&)>& done);

}  // namespace lockstep::ptx
