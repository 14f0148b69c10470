// The StageWorker of one rank of an emulated run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collectives/transports/transport.h"
#include "schedules/interpreter/stage_worker.h"
#include "schedules/step/step.h"
#include "simulator/emulated/device_clock.h"
#include "simulator/emulated/emulated_collectives.h"

namespace lockstep::simulator {

// The contents of a message: its identity, and when it moved by the steady clock.
struct MessageStamp {
  std::int64_t left_ns = 0;
  std::int64_t arrival_ns = 0;
  std::int32_t op = 0;  // operation of the send
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t tag = 0;
};

class EmulatedWorker final : public schedules::StageWorker {
 public:
  // `transport`: this rank's end for messages between stages; has to outlive this object. `start_ns`: when the step
  // begins.
  EmulatedWorker(const schedules::Step& step, transports::Transport& transport, transports::LinkSpec link,
                 std::int64_t start_ns, std::unique_ptr<EmulatedCollectives> collectives);

  bool begin(std::uint32_t task) override;
  bool ended(std::uint32_t task) override;
  void idle(int thread) override;
  void finish() override;
  schedules::TaskSpan span_of(std::uint32_t task) const override;

  std::int64_t finished_ns() const { return finished_ns_; }
  // Largest delay with which a kernel was issued, or the end of a collective or of the step was seen.
  std::int64_t late_ns() const;

 private:
  struct TaskTimes {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  struct Receive {
    transports::Request request;
    MessageStamp stamp;
  };

  bool begin_kernel(std::uint32_t task);
  void run_collective(std::uint32_t task);
  void send(std::uint32_t task);
  void begin_receive(std::uint32_t task);
  bool receive_ended(std::uint32_t task);
  // Time at which all tasks that the task waits for have ended.
  std::int64_t ready_ns(std::uint32_t task) const;

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

}  // namespace lockstep::simulator
