// A file for data that does not fit into a device's memory: asynchronous reads and writes, many at a time, that bypass
// the page cache (O_DIRECT) if the file system supports it. All of its space is allocated when it is opened, so that a
// full disk is reported before anything runs. It has no name, so that nobody can remove it and nothing is left when the
// program is killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::core {

// For one thread at a time. Offsets, sizes and addresses must be multiples of kAlign bytes.
class AsyncFile {
 public:
  static constexpr std::int64_t kAlign = 4096;
  struct Options {
    std::string folder;
    std::int64_t bytes = 0;
    int depth = 32;                        // queue depth: requests in flight at most
    std::int64_t request_bytes = 1 << 20;  // larger reads and writes are split into requests of this size
    std::chrono::milliseconds timeout{60'000};
  };
  // Throws a usage Error that names the folder, the problem (no such folder, no space) and what is allowed.
  explicit AsyncFile(const Options& options);
  ~AsyncFile();  // waits for requests in flight
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  using Ticket = std::uint64_t;
  // Starts a transfer. The memory must not be touched until wait(). The caller orders transfers that touch the same
  // bytes.
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes);
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes);
  // Throws an Error with offset and reason if the transfer failed or was short, and Error(timeout) at the deadline.
  void wait(Ticket ticket);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::core
