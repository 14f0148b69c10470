// Emulated links: a message between local ranks takes as long as on a link of specified speed.
//
// Each rank has one full-duplex port. A message occupies the sender's outgoing and the receiver's incoming side for
// bytes / bandwidth, both at once and exclusively, and arrives one latency after it has left. It takes the earliest
// free time from the moment at which it was ready, in several pieces if others are in between, as packets would; also
// time before messages that were booked earlier. So a port is a calendar, not a queue. (In a queue, a message that
// waits for one busy side keeps its other side idle for all that are booked later; and gaps a little shorter than a
// message, as ranks arrive at slightly different times, would be lost.)
//
// All of this is in computed times, for which no thread has to be awake. The caller that books makes the wall clock
// follow.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

#include "core/wait.h"

namespace lockstep::transports {

struct LinkSpec {
  double latency_us = 0;
  double gbps = 0;  // 1e9 bytes/s, each way (10 Gbit/s are 1.25); 0: no limit
};

// Parses "latency_us=10,gbps=1". Throws a usage Error that lists what is allowed.
LinkSpec parse_link(std::string_view text);

// Time for which a message occupies a link, and time from its leaving to its arrival.
std::int64_t occupied_ns(const LinkSpec& link, std::int64_t size_bytes);
std::int64_t latency_ns(const LinkSpec& link);

// Busy times of one side of a port: its last kMost busy intervals, in order and with gaps between them. Time before the
// oldest one is forgotten, and counts as busy: a port may lose an old gap, but never carries two messages at once.
class BusyTimes {
 public:
  static constexpr std::size_t kMost = 256;

  struct Interval {
    std::int64_t begin_ns, end_ns;
  };
  // The first free interval at `earliest_ns` or later.
  Interval next_free(std::int64_t earliest_ns) const;
  // The interval must be free.
  void occupy(const Interval& taken);

 private:
  std::int64_t forgotten_until_ns_ = std::numeric_limits<std::int64_t>::min();
  std::size_t count_ = 0;
  std::array<Interval, kMost> busy_;
};

// The ports. Placed in shared memory; any thread may book at any time.
class LinkTable {
 public:
  struct alignas(128) Port {
    BusyTimes out;
    BusyTimes in;
  };
  LinkTable(LinkSpec spec, Port* ports) : spec_(spec), ports_(ports) {}

  // Books a message that is ready at `ready_ns`; returns its arrival time.
  std::int64_t book(int from, int to, std::int64_t size_bytes, std::int64_t ready_ns);

 private:
  const LinkSpec spec_;
  Port* ports_;  // [rank]
  std::atomic<bool> booking_{false};
};

std::int64_t now_ns();
// Processor time of the calling thread.
std::int64_t thread_time_ns();
// Returns at the given time: sleeps far from it, yields near it.
void wait_until_ns(std::int64_t time_ns);
// The same, asleep to the end, and some 10 us late: for threads whose core others need. A yield would return at the end
// of their time slice, milliseconds late.
void sleep_until_ns(std::int64_t time_ns);

}  // namespace lockstep::transports
