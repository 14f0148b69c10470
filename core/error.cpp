#include "core/error.h"

namespace lockstep::core {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(Failure::internal, std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition +
                                     (message.empty() ? "" : ": " + message));
}

}  // namespace lockstep::core
