#include "collectives/transports/paced_link.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <thread>

#include "core/options.h"

namespace lockstep::transports {
namespace {

constexpr std::array kFields{
    core::Field<LinkSpec>{"latency_us", "0 to 1e9",
                          [](LinkSpec& link, const core::OptionText& v) { link.latency_us = v.number_from(0, 1e9); }},
    core::Field<LinkSpec>{"gbps", "1e-6 to 1e6",
                          [](LinkSpec& link, const core::OptionText& v) { link.gbps = v.number_from(1e-6, 1e6); }}};

}  // namespace

LinkSpec parse_link(std::string_view text) {
  LinkSpec spec;
  core::read_fields<LinkSpec>(spec, "", core::split(text, ','), kFields);
  return spec;
}

std::int64_t occupied_ns(const LinkSpec& link, std::int64_t size_bytes) {
  return link.gbps > 0 ? static_cast<std::int64_t>(static_cast<double>(size_bytes) / link.gbps) : 0;
}

std::int64_t latency_ns(const LinkSpec& link) {
  return static_cast<std::int64_t>(link.latency_us * 1e3);
}

BusyTimes::Interval BusyTimes::next_free(std::int64_t earliest_ns) const {
  Interval free{std::max(earliest_ns, forgotten_until_ns_), std::numeric_limits<std::int64_t>::max()};
  const Interval* const end = busy_.data() + count_;
  const Interval* next =
      std::partition_point(busy_.data(), end, [&](const Interval& busy) { return busy.end_ns <= free.begin_ns; });
  // Busy intervals never touch: after this one there is a gap.
  if (next != end && next->begin_ns <= free.begin_ns) free.begin_ns = next++->end_ns;
  if (next != end) free.end_ns = next->begin_ns;
  return free;
}

void BusyTimes::occupy(const Interval& taken) {
  const auto [begin_ns, end_ns] = taken;
  Interval* const end = busy_.data() + count_;
  Interval* next =
      std::partition_point(busy_.data(), end, [&](const Interval& busy) { return busy.begin_ns < taken.end_ns; });
  const bool meets_next = next != end && next->begin_ns == end_ns;
  if (next != busy_.data() && next[-1].end_ns == begin_ns) {
    next[-1].end_ns = meets_next ? next->end_ns : end_ns;
    if (meets_next) count_ = static_cast<std::size_t>(std::move(next + 1, end, next) - busy_.data());
    return;
  }
  if (meets_next) {
    next->begin_ns = begin_ns;
    return;
  }
  if (count_ < kMost) {
    std::move_backward(next, end, end + 1);
    *next = {begin_ns, end_ns};
    ++count_;
    return;
  }
  // Full: the oldest is dropped, which may be the new one itself.
  if (next == busy_.data()) {
    forgotten_until_ns_ = end_ns;
    return;
  }
  forgotten_until_ns_ = busy_.front().end_ns;
  std::move(busy_.data() + 1, next, busy_.data());
  next[-1] = {begin_ns, end_ns};
}

std::int64_t LinkTable::book(int from, int to, std::int64_t size_bytes, std::int64_t ready_ns) {
  std::int64_t left_ns = occupied_ns(spec_, size_bytes);
  std::int64_t time_ns = ready_ns;
  while (booking_.exchange(true, std::memory_order_acquire)) sched_yield();  // held for a search only
  BusyTimes& out = ports_[from].out;
  BusyTimes& in = ports_[to].in;
  while (left_ns > 0) {
    const BusyTimes::Interval a = out.next_free(time_ns);
    const BusyTimes::Interval b = in.next_free(time_ns);
    time_ns = std::max(a.begin_ns, b.begin_ns);
    const std::int64_t piece_ns = std::min(left_ns, std::min(a.end_ns, b.end_ns) - time_ns);
    if (piece_ns <= 0) continue;  // one side is free again only when the other is not
    out.occupy({time_ns, time_ns + piece_ns});
    in.occupy({time_ns, time_ns + piece_ns});
    time_ns += piece_ns;
    left_ns -= piece_ns;
  }
  booking_.store(false, std::memory_order_release);
  return time_ns + latency_ns(spec_);
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(core::Clock::now().time_since_epoch()).count();
}

std::int64_t thread_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

namespace {

// Ends some 10 us late; the default timer slack of a thread would add 50 us.
void sleep_ns(std::int64_t span_ns) {
  constexpr unsigned long kSlackNs = 1000;
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
  std::this_thread::sleep_for(std::chrono::nanoseconds(span_ns));
}

}  // namespace

void wait_until_ns(std::int64_t time_ns) {
  constexpr std::int64_t kWakeUpNs = 80'000;  // a sleep may end this much late
  for (std::int64_t left = time_ns - now_ns(); left > 0; left = time_ns - now_ns()) {
    if (left > kWakeUpNs) {
      sleep_ns(left - kWakeUpNs);
    } else {
      sched_yield();
    }
  }
}

void sleep_until_ns(std::int64_t time_ns) {
  for (std::int64_t left = time_ns - now_ns(); left > 0; left = time_ns - now_ns()) sleep_ns(left);
}

}  // namespace lockstep::transports
