// The facts that a stranger needs to repeat a run: the source, the build, the machine. Nothing private: no user, no
// host, no folder, no environment.
#pragma once

#include <string>
#include <vector>

#include "core/record_types.h"

namespace lockstep::core {

Source source();
Build build();
Machine this_machine();  // without GPUs, one host: the caller knows better

// A hash of all fields but the clock: equal where results may be compared.
std::string fingerprint(const Machine& machine);

// A run of this process, of this source and build on this machine, that starts now.
RunRecord new_run(const std::string& program, const std::vector<std::string>& command);

// A command line as it may be shown to strangers: of absolute paths only the last part stays.
std::vector<std::string> public_command(const std::vector<std::string>& command);

std::string utc_now();     // "2026-01-31T23:59:59Z"
std::string new_run_id();  // 16 hexadecimal digits, not to be met twice

}  // namespace lockstep::core
