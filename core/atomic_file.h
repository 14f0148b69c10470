// A file that appears whole or not at all: written without a name (or, if the file system has no such files, beside its
// target under another name), synced, then given its name.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::core {

// For one thread at a time. Unless commit() has returned, the destructor leaves the target as it was and no other file
// behind. All failures throw an Error that names the target and the system's reason.
class AtomicFile {
 public:
  // Checks at once whether the folder can be written. A target that is not a regular file (a device, a folder) is
  // refused with a usage Error, because renaming would replace it.
  explicit AtomicFile(const std::string& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  // Overwrites the beginning of the file, for a header that describes the data behind it.
  void write_over_beginning(std::string_view text);
  void commit();  // once; nothing may be written afterwards

 private:
  void discard();
  [[noreturn]] void fail(int error_number);

  std::string target_;
  std::string partial_;  // temporary name beside the target
  bool is_named_ = false;
  int descriptor_ = -1;
};

// Returns the system's text for an error number.
std::string system_reason(int error_number);

// Throws a usage Error if the target exists and is not a regular file.
void refuse_special_target(const std::string& target);

// Syncs a folder: names created or removed in it survive a crash of the machine from here on. Does nothing on file
// systems that cannot sync folders.
void sync_folder(const std::string& folder);

}  // namespace lockstep::core
