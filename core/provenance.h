// The facts that a stranger needs to repeat a run: source, build and machine. Nothing private: no user, host, folder or
// environment.
#pragma once

#include <string>
#include <vector>

#include "core/record_types.h"

namespace lockstep::core {

Source source();
Build build();
Machine this_machine();  // without GPUs and for one host; the caller fills these in

// A hash of all fields but the clock: results are comparable if it is equal.
std::string fingerprint(const Machine& machine);

// Makes the record of a run of this process, source and build on this machine that starts now.
RunRecord new_run(const std::string& program, const std::vector<std::string>& command);

// The command line as it may be published: only the last part of absolute paths is kept.
std::vector<std::string> public_command(const std::vector<std::string>& command);

std::string utc_now();     // "2026-01-31T23:59:59Z"
std::string new_run_id();  // 16 random hexadecimal digits

}  // namespace lockstep::core
