// For tests: a folder that is gone with its owner, files in it, and what an action throws.
#pragma once

#include <fstream>
#include <functional>
#include <ios>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/folder_for_tests.h"

namespace lockstep::trainer {

using core::TemporaryFolder;

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Empty if nothing is thrown. Other exceptions than ours pass.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::trainer
