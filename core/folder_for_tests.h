// For tests: a temporary folder that is removed with its owner.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/error.h"

namespace lockstep::core {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "lockstep_test_XXXXXX").string();
    LOCKSTEP_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace lockstep::core
