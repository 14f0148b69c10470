// A file for what does not fit into a device's memory: reads and writes that run beside the caller, many at a time,
// past the page cache (O_DIRECT) where the file system has that. It has all its room from the beginning, so that a disk
// that is full says so before anything runs, and no name, so that nobody can remove it and nothing is left when the
// program is killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::core {

// One thread at a time. Offsets, sizes and addresses are multiples of kAlign bytes.
class AsyncFile {
 public:
  static constexpr std::int64_t kAlign = 4096;
  struct Options {
    std::string folder;
    std::int64_t bytes = 0;
    int depth = 32;                        // of the queue: requests that the device may have at once
    std::int64_t request_bytes = 1 << 20;  // of a request: what is asked for is cut into such
    std::chrono::milliseconds timeout{60'000};
  };
  // Throws a usage Error that names the folder, what is wrong (no such folder, no room) and what is allowed.
  explicit AsyncFile(const Options& options);
  ~AsyncFile();  // what is under way ends first
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  using Ticket = std::uint64_t;
  // Begun; the memory belongs to the file until wait(). Those that touch the same bytes are the caller's to order.
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes);
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes);
  // Throws an Error with the offset and the reason where it failed or was short, and Error(timeout) at the deadline.
  void wait(Ticket ticket);

  bool is_direct() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::core
