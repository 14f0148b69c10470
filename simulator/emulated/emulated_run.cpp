// The run of a step on emulated devices: a device's clock, and the StageWorker of one rank.
#include "simulator/emulated/emulated_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/error.h"
#include "core/ranks.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/step/step.h"
#include "simulator/emulated/emulated_collectives.h"

namespace lockstep::simulator {

// The clock of an emulated device: kernels take their stated times, one after another, without computing anything.
//
// Like a GPU it has a queue. A kernel that is issued before the previous one has ended starts when that one ends, not
// when the issuing thread wakes up, so wake-up times do not add up. The queue holds several kernels (a GPU's holds
// hundreds), so a thread that wakes up a few kernels late delays nothing. If it wakes up even later, the device really
// is idle until then, and the lateness is recorded.
class DeviceClock {
 public:
  static constexpr std::size_t kQueueDepth = 16;  // most kernels that are issued and have not ended

  // The time from which the next kernel may be issued; at most `now_ns` if it may be issued now.
  std::int64_t room_ns(std::int64_t now_ns) {
    while (!ends_ns_.empty() && ends_ns_.front() <= now_ns) ends_ns_.pop_front();
    return ends_ns_.size() < kQueueDepth ? now_ns : ends_ns_.front();
  }

  // Issues a kernel whose inputs are ready at `ready_ns`; returns its start and end.
  struct Kernel {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  Kernel issue(std::int64_t ready_ns, std::int64_t duration_ns, std::int64_t now_ns) {
    const std::int64_t could_start = std::max(ready_ns, free_ns_);
    const std::int64_t start = std::max(could_start, now_ns);
    late_ns_ = std::max(late_ns_, start - could_start);
    free_ns_ = start + duration_ns;
    ends_ns_.push_back(free_ns_);
    return {start, free_ns_};
  }

  std::int64_t late_ns() const { return late_ns_; }  // largest lateness so far

 private:
  std::int64_t free_ns_ = 0;
  std::int64_t late_ns_ = 0;
  std::deque<std::int64_t> ends_ns_;
};

// The contents of a message: its identity, and when it moved by the steady clock.
struct MessageStamp {
  std::int64_t left_ns = 0;
  std::int64_t arrival_ns = 0;
  std::int32_t op = 0;  // operation of the send
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t tag = 0;
};

using schedules::Lane;
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

// The StageWorker of one rank of an emulated run.
class EmulatedWorker final : public schedules::StageWorker {
 public:
  // `transport`: this rank's end for messages between stages; has to outlive this object. `start_ns`: when the step
  // begins.
  EmulatedWorker(const schedules::Step& step, transports::Transport& transport, transports::LinkSpec link,
                 std::int64_t start_ns, std::unique_ptr<EmulatedCollectives> collectives)
      : tasks_(step.of_rank[static_cast<std::size_t>(transport.rank())]),
        transport_(transport),
        link_(link),
        start_ns_(start_ns),
        collectives_(std::move(collectives)),
        times_(tasks_.tasks.size()) {}

  bool begin(std::uint32_t task) override {
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

  bool ended(std::uint32_t task) override { return !schedules::is_recv(tasks_.tasks[task].op) || receive_ended(task); }

  void idle(int thread) override {
    // With a full queue there is nothing to do until it has room.
    const std::int64_t full_ns = thread == 0 ? room_ns_ - now_ns() : 0;
    const std::int64_t nap_ns = full_ns > 0 ? std::min(full_ns, kLongestNapNs) : kLookNs;
    std::this_thread::sleep_for(std::chrono::nanoseconds(nap_ns));
  }

  void finish() override {
    std::int64_t last = start_ns_;
    for (const TaskTimes& times : times_) last = std::max(last, times.end_ns);
    transports::wait_until_ns(last);
    finished_ns_ = now_ns();
    last_late_ns_ = finished_ns_ - last;
  }

  schedules::TaskSpan span_of(std::uint32_t task) const override {
    return {(times_[task].start_ns - start_ns_) * 1000, (times_[task].end_ns - start_ns_) * 1000};
  }

  std::int64_t finished_ns() const { return finished_ns_; }
  // Largest delay with which a kernel was issued, or the end of a collective or of the step was seen.
  std::int64_t late_ns() const {
    std::int64_t late =
        std::max(last_late_ns_, *std::max_element(collective_late_ns_.begin(), collective_late_ns_.end()));
    for (const DeviceClock& clock : clocks_) late = std::max(late, clock.late_ns());
    return late;
  }

 private:
  struct TaskTimes {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  struct Receive {
    transports::Request request;
    MessageStamp stamp;
  };

  bool begin_kernel(std::uint32_t task) {
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

  void run_collective(std::uint32_t task) {
    const Task& t = tasks_.tasks[task];
    const auto lane = static_cast<std::size_t>(t.lane);
    const auto ran = collectives_->run(t, std::max(ready_ns(task), collective_free_ns_[lane]));
    times_[task] = {ran.start_ns, ran.end_ns};
    collective_free_ns_[lane] = ran.end_ns;
    collective_late_ns_[lane] = std::max(collective_late_ns_[lane], now_ns() - ran.end_ns);
  }

  // A message leaves when its producer ends, but is passed to the transport immediately: it contains its arrival time.
  void send(std::uint32_t task) {
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

  void begin_receive(std::uint32_t task) {
    const Task& t = tasks_.tasks[task];
    Receive& receive = receives_[task];
    receive.request =
        transport_.recv(t.peer, t.tag, std::as_writable_bytes(std::span<MessageStamp>(&receive.stamp, 1)));
  }

  bool receive_ended(std::uint32_t task) {
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

  // Time at which all tasks that the task waits for have ended.
  std::int64_t ready_ns(std::uint32_t task) const {
    std::int64_t ready = start_ns_;
    for (const std::uint32_t earlier : tasks_.after_of(tasks_.tasks[task])) {
      ready = std::max(ready, times_[earlier].end_ns);
    }
    return ready;
  }

  const schedules::RankStep& tasks_;
  transports::Transport& transport_;
  const transports::LinkSpec link_;
  const std::int64_t start_ns_;
  std::unique_ptr<EmulatedCollectives> collectives_;
  std::array<DeviceClock, schedules::kNumLanes> clocks_;  // per lane: kernels, copies
  std::vector<TaskTimes> times_;  // per task; written by its lane's thread before ended() returns true
  // Per lane: end of its last collective, and the largest delay in seeing it.
  std::array<std::int64_t, schedules::kNumLanes> collective_free_ns_ = {};
  std::array<std::int64_t, schedules::kNumLanes> collective_late_ns_ = {};
  std::map<std::int32_t, std::int64_t> link_free_ns_;  // by receiver
  std::int64_t copy_free_ns_ = 0;              // for lane copy, whose messages go to and come from one other rank
  std::map<std::uint32_t, Receive> receives_;  // in flight
  std::int64_t room_ns_ = 0;                   // time at which the compute lane's queue has room again
  std::int64_t finished_ns_ = 0;
  std::int64_t last_late_ns_ = 0;  // lateness of finished_ns_
};

namespace {

constexpr int kAnyNumber = 1 << 30;                // capacity of a mailbox, in messages
constexpr std::int64_t kHeadStartNs = 20'000'000;  // time for all threads to issue their first kernels

// Collectives block their thread, so each lane of collectives has its own.
schedules::InterpreterOptions interpreter_options(std::chrono::nanoseconds deadline) {
  schedules::InterpreterOptions options;
  options.deadline = deadline;
  options.thread_of[static_cast<std::size_t>(Lane::tensor)] = 1;
  options.thread_of[static_cast<std::size_t>(Lane::gather)] = 2;
  options.thread_of[static_cast<std::size_t>(Lane::reduce)] = 3;
  options.thread_of[static_cast<std::size_t>(Lane::replicas)] = 4;
  return options;
}

// A rank may legitimately wait while all others work one after another.
std::chrono::nanoseconds deadline_of(const schedules::Step& step, const EmulationOptions& options) {
  std::int64_t longest_ns = 0;
  for (const auto& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      const bool moves = schedules::is_send(task.op) || task.comm != schedules::Comm::none;
      if (task.lane == Lane::compute) longest_ns += task.amount / 1000;
      if (moves)
        longest_ns += transports::occupied_ns(options.link, task.amount) + transports::latency_ns(options.link);
    }
  }
  return options.deadline + std::chrono::nanoseconds(longest_ns);
}

}  // namespace

EmulatedRun run_emulated(const schedules::Step& step, const EmulationOptions& options) {
  const int ranks = step.num_ranks();
  const std::chrono::nanoseconds deadline = deadline_of(step, options);
  transports::LoopbackWorld world(ranks, kAnyNumber, deadline);
  std::vector<transports::LinkTable::Port> ports(static_cast<std::size_t>(ranks));
  transports::LinkTable links(options.link, ports.data());
  core::AbortFlag abort;
  EmulatedRun run;
  run.timeline.resize(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> finished_ns(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> late_ns(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> started_ns(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<EmulatedCollectives>>
      collectives;  // made before any rank starts, as plans may be refused
  for (int r = 0; r < ranks; ++r) {
    collectives.push_back(std::make_unique<EmulatedCollectives>(step, r, options, world, links, abort));
  }
  core::run_ranks(core::Sharing::threads, ranks, abort, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto transport = world.endpoint(rank);
    const auto ready = transports::all_gather_value(*transport, transports::now_ns());
    started_ns[r] = *std::max_element(ready.begin(), ready.end()) + kHeadStartNs;
    EmulatedWorker worker(step, *transport, options.link, started_ns[r], std::move(collectives[r]));
    run.timeline[r] = schedules::run_rank(step, rank, worker, abort, interpreter_options(deadline));
    finished_ns[r] = worker.finished_ns();
    late_ns[r] = worker.late_ns();
  });
  run.makespan_ns = *std::max_element(finished_ns.begin(), finished_ns.end()) - started_ns.front();
  run.late_ns = *std::max_element(late_ns.begin(), late_ns.end());
  return run;
}

}  // namespace lockstep::simulator
