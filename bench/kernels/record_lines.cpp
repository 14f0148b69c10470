#include "bench/kernels/record_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace lockstep::kernel_bench {
namespace {

std::string reason(int error_number) {
  return std::generic_category().message(error_number);
}

bool is_regular(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

RecordLines::RecordLines(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ >= 0) return;
  throw core::usage_error("cannot write " + path_ + ": " + reason(errno) +
                          "; allowed: a file in a folder that is there and can be written");
}

RecordLines::~RecordLines() {
  close(descriptor_);
}

void RecordLines::write_line(const std::string& line) {
  if (!is_begun_ && is_regular(descriptor_) && ftruncate(descriptor_, 0) != 0) {
    throw core::Error(core::Failure::internal, "cannot empty " + path_ + ": " + reason(errno));
  }
  is_begun_ = true;
  // One call of the system a line: nothing comes between its bytes. The loop is for pipes, which may take less.
  for (std::string_view left = line; !left.empty();) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw core::Error(core::Failure::internal, "cannot write " + path_ + ": " + reason(errno));
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace lockstep::kernel_bench
