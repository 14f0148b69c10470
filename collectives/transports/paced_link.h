// Emulated links in wall-clock time: a message between local ranks takes as long as a stated link would take.
//
// Each rank has one full-duplex port. A message occupies the sender's outgoing and the receiver's incoming side for
// bytes / bandwidth, one message at a time in each, and arrives one latency after it has left. Processor time that the
// machine needs for the copy itself runs beside it and is not subtracted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/wait.h"

namespace lockstep::transports {

struct LinkSpec {
  double latency_us = 0;
  double gbps = 0;  // 1e9 bytes a second, each way (10 Gbit/s are 1.25); 0: without limit
};

// "latency_us=10,gbps=1". Throws a usage Error that says what is allowed.
LinkSpec parse_link(std::string_view text);

// How long a message occupies a link, and how long after it has left it arrives.
std::int64_t occupied_ns(const LinkSpec& link, std::int64_t size_bytes);
std::int64_t latency_ns(const LinkSpec& link);

// When each port is free again. Lies in shared memory.
class LinkTable {
 public:
  struct alignas(128) Port {
    std::atomic<std::int64_t> out_free_ns{0};
    std::atomic<std::int64_t> in_free_ns{0};
  };
  LinkTable(LinkSpec spec, Port* ports) : spec_(spec), ports_(ports) {}

  // Books a message that was ready at `ready_ns` (steady clock); returns when it has arrived.
  std::int64_t book(int from, int to, std::int64_t size_bytes, std::int64_t ready_ns);

 private:
  const LinkSpec spec_;
  Port* ports_;  // [rank]
  std::atomic<bool> booking_{false};
};

std::int64_t now_ns();
// Returns at the stated time: sleeps far from it, yields near it.
void wait_until_ns(std::int64_t time_ns);
// The same, asleep to the end, and some 10 us late: for threads whose core others have work for. A yield would come
// back at the end of their time slice, milliseconds late.
void sleep_until_ns(std::int64_t time_ns);

}  // namespace lockstep::transports
