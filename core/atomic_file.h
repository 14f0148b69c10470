// A file that is there whole or not at all: written without a name (or, where a file system has no such files, beside
// its target under another name), synced, then given its name.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::core {

// Not to be shared between threads. Unless commit() has returned, the destructor leaves the target as it was and no
// other file behind. All failures throw an Error that names the target and the system's reason.
class AtomicFile {
 public:
  // Finds out at once whether the folder can be written. A target that is no regular file (a device, a folder) is
  // refused with a usage Error, as renaming would replace it.
  explicit AtomicFile(const std::string& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  // Over what was written first: of a header that says what came behind it.
  void write_over_beginning(std::string_view text);
  void commit();  // once; nothing may be written afterwards

 private:
  void discard();
  [[noreturn]] void fail(int error_number);

  std::string target_;
  std::string partial_;  // the name before the last
  bool is_named_ = false;
  int descriptor_ = -1;
};

// Names that were given or taken in a folder survive a crash of the machine from here on. A file system that cannot
// sync folders is left to its ways.
void sync_folder(const std::string& folder);

}  // namespace lockstep::core
