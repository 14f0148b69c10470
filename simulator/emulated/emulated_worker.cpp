#include "simulator/emulated/emulated_worker.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "collectives/transports/paced_link.h"
#include "core/error.h"
#include "schedules/interpreter/task_text.h"

namespace lockstep::simulator {

using schedules::Task;
using transports::now_ns;

namespace {

// Polling interval for messages. They are sent ahead of their time (docs/method.md), so it need not be short.
constexpr std::int64_t kLookNs = 150'000;
constexpr std::int64_t kLongestNapNs = 20'000'000;  // longest sleep, so that an abort is seen soon

MessageStamp stamp_of(const Task& send) {
  return {0, 0, static_cast<std::int32_t>(send.op), send.stage, send.microbatch, send.tag};
}

struct Sender {
  schedules::Op op;
  std::int32_t stage;
};
Sender sender_of(const Task& receive) {
  using schedules::Op;
  switch (receive.op) {
    case Op::recv_activations:
      return {Op::send_activations, receive.stage - 1};
    case Op::hold:
      return {Op::evict, receive.stage};
    case Op::asked:
      return {Op::ask, receive.stage};
    case Op::fetch:
      return {Op::yield, receive.stage};
    default:
      return {Op::send_gradient, receive.stage + 1};
  }
}

// The send whose message a receive waits for.
MessageStamp due_at(const Task& receive) {
  const Sender sender = sender_of(receive);
  return {0, 0, static_cast<std::int32_t>(sender.op), sender.stage, receive.microbatch, receive.tag};
}

bool is_same_message(const MessageStamp& a, const MessageStamp& b) {
  return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch && a.tag == b.tag;
}

}  // namespace

EmulatedWorker::EmulatedWorker(const schedules::Step& step, transports::Transport& transport, transports::LinkSpec link,
                               std::int64_t start_ns, std::unique_ptr<EmulatedCollectives> collectives)
    : tasks_(step.of_rank[static_cast<std::size_t>(transport.rank())]),
      transport_(transport),
      link_(link),
      start_ns_(start_ns),
      collectives_(std::move(collectives)),
      times_(tasks_.tasks.size()) {}

bool EmulatedWorker::begin(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  if (t.comm != schedules::Comm::none) {
    run_collective(task);
  } else if (schedules::is_send(t.op)) {
    send(task);
  } else if (schedules::is_recv(t.op)) {
    begin_receive(task);
  } else {
    return begin_kernel(task);
  }
  return true;
}

bool EmulatedWorker::ended(std::uint32_t task) {
  return !schedules::is_recv(tasks_.tasks[task].op) || receive_ended(task);
}

void EmulatedWorker::idle(int thread) {
  // With a full queue there is nothing to do until it has room.
  const std::int64_t full_ns = thread == 0 ? room_ns_ - now_ns() : 0;
  const std::int64_t nap_ns = full_ns > 0 ? std::min(full_ns, kLongestNapNs) : kLookNs;
  std::this_thread::sleep_for(std::chrono::nanoseconds(nap_ns));
}

void EmulatedWorker::finish() {
  std::int64_t last = start_ns_;
  for (const TaskTimes& times : times_) last = std::max(last, times.end_ns);
  transports::wait_until_ns(last);
  finished_ns_ = now_ns();
  last_late_ns_ = finished_ns_ - last;
}

schedules::TaskSpan EmulatedWorker::span_of(std::uint32_t task) const {
  return {(times_[task].start_ns - start_ns_) * 1000, (times_[task].end_ns - start_ns_) * 1000};
}

std::int64_t EmulatedWorker::ready_ns(std::uint32_t task) const {
  std::int64_t ready = start_ns_;
  for (const std::uint32_t earlier : tasks_.after_of(tasks_.tasks[task])) {
    ready = std::max(ready, times_[earlier].end_ns);
  }
  return ready;
}

std::int64_t EmulatedWorker::late_ns() const {
  std::int64_t late =
      std::max(last_late_ns_, *std::max_element(collective_late_ns_.begin(), collective_late_ns_.end()));
  for (const DeviceClock& clock : clocks_) late = std::max(late, clock.late_ns());
  return late;
}

void EmulatedWorker::run_collective(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  const auto lane = static_cast<std::size_t>(t.lane);
  const auto ran = collectives_->run(t, std::max(ready_ns(task), collective_free_ns_[lane]));
  times_[task] = {ran.start_ns, ran.end_ns};
  collective_free_ns_[lane] = ran.end_ns;
  collective_late_ns_[lane] = std::max(collective_late_ns_[lane], now_ns() - ran.end_ns);
}

bool EmulatedWorker::begin_kernel(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  DeviceClock& clock = clocks_[static_cast<std::size_t>(t.lane)];
  const std::int64_t now = now_ns();
  const std::int64_t room = clock.room_ns(now);
  if (t.lane == schedules::Lane::compute) room_ns_ = room;
  if (room > now) return false;
  const auto kernel = clock.issue(ready_ns(task), t.amount / 1000, now);
  times_[task] = {kernel.start_ns, kernel.end_ns};
  return true;
}

// A message leaves when its producer ends, but is passed to the transport immediately: it contains its arrival time.
void EmulatedWorker::send(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  std::int64_t& free_ns = link_free_ns_[t.peer];
  MessageStamp stamp = stamp_of(t);
  stamp.left_ns = std::max(ready_ns(task), free_ns);
  if (t.lane == schedules::Lane::copy) stamp.left_ns = std::max(stamp.left_ns, copy_free_ns_);
  free_ns = stamp.left_ns + transports::occupied_ns(link_, t.amount);
  stamp.arrival_ns = free_ns + transports::latency_ns(link_);
  times_[task] = {stamp.left_ns, free_ns};
  if (t.lane == schedules::Lane::copy) copy_free_ns_ = free_ns;
  const auto bytes = std::as_bytes(std::span<const MessageStamp>(&stamp, 1));
  const transports::Request request = transport_.send(t.peer, t.tag, bytes);
  LOCKSTEP_CHECK(transport_.done(request), "the mailbox copies messages at once");
}

void EmulatedWorker::begin_receive(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  Receive& receive = receives_[task];
  receive.request = transport_.recv(t.peer, t.tag, std::as_writable_bytes(std::span<MessageStamp>(&receive.stamp, 1)));
}

bool EmulatedWorker::receive_ended(std::uint32_t task) {
  const auto receive = receives_.find(task);
  if (!transport_.done(receive->second.request)) return false;
  const MessageStamp stamp = receive->second.stamp;
  receives_.erase(receive);
  const Task& t = tasks_.tasks[task];
  if (!is_same_message(stamp, due_at(t))) {
    throw core::Error(core::Failure::wrong_data, "rank " + std::to_string(transport_.rank()) + ": " +
                                                     schedules::text_of(t) + " got the message of stage " +
                                                     std::to_string(stamp.stage) + ", microbatch " +
                                                     std::to_string(stamp.microbatch));
  }
  times_[task] = {stamp.left_ns, stamp.arrival_ns};
  if (t.lane == schedules::Lane::copy) copy_free_ns_ = std::max(copy_free_ns_, stamp.arrival_ns);
  return true;
}

}  // namespace lockstep::simulator
