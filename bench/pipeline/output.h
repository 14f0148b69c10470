// What programs of this folder do with their results.
#pragma once

#include <functional>
#include <string>

namespace lockstep::pipeline {

using Print = std::function<void(const std::string& text)>;
void to_stdout(const std::string& text);  // at once

// Whole or not at all.
void write_file(const std::string& path, const std::string& text);

// The exit status of `run`, or the failure's after one line on stderr.
int exit_status_of(const char* program, const std::function<int()>& run);

}  // namespace lockstep::pipeline
