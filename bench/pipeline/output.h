// What programs of this folder do with their results.
#pragma once

#include <functional>
#include <string>

namespace lockstep::pipeline {

void print(const std::string& text);  // to stdout, at once

// Whole or not at all.
void write_file(const std::string& path, const std::string& text);

// The exit status of `run`, or the failure's after one line on stderr.
int exit_status_of(const char* program, const std::function<int()>& run);

}  // namespace lockstep::pipeline
