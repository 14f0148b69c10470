#include "bench/pipeline/output.h"

#include <cstdio>
#include <exception>

#include "core/atomic_file.h"
#include "core/error.h"

namespace lockstep::pipeline {

void to_stdout(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void write_file(const std::string& path, const std::string& text) {
  core::AtomicFile file(path);
  file.write(text);
  file.commit();
}

int exit_status_of(const char* program, const std::function<int()>& run) {
  try {
    return run();
  } catch (const core::Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(core::Failure::internal);
  }
}

}  // namespace lockstep::pipeline
