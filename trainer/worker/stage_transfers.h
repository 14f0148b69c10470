// Messages between pipeline stages. Host memory is sent directly; other devices' memory is staged through a copy on the
// host, so that any transport will do. If work is queued, the copies are queued too, in the streams of the messages'
// lanes, and overlap with kernels: the host polls their completion and never waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/device.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/offload.h"
#include "schedules/step/step.h"
#include "trainer/worker/lanes.h"
#include "workload/memory.h"

namespace lockstep::trainer {

class StageMessages {
 public:
  // The arguments must outlive this. `lanes`: if work is queued.
  StageMessages(transports::Transport& messages, core::Device& device, const LaneQueues* lanes);
  ~StageMessages();
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // `task` is number `index` of its rank. The memory must not change until ended() returns true. If work is queued, the
  // lane's stream must already wait for the kernels that produce or last used the memory.
  void send(std::uint32_t index, const schedules::Task& task, const kernels::In& what);
  void receive(std::uint32_t index, const schedules::Task& task, const kernels::Out& where);
  // Makes progress. Once it returns true the message is forgotten; received data is available to work that waits for
  // the lane's stream from then on.
  bool ended(std::uint32_t index);
  void settle();  // returns when all copies are done

 private:
  // A staging buffer on the host: page-locked if copies are queued.
  struct Staged {
    void* memory = nullptr;
    std::size_t size_bytes = 0;
    std::unique_ptr<core::Event> copied = {};
  };
  struct Message {
    bool is_send = false;
    schedules::Task task = {};
    void* on_device = nullptr;  // destination of a received message
    Staged staged = {};
    std::vector<std::byte> on_host = {};  // if nothing is queued
    bool posted = false;
    transports::Request request = {};
  };
  bool queues() const { return lanes_ != nullptr; }
  Staged take(std::size_t size_bytes);
  void post(Message& message);
  void arrived(Message& message);

  transports::Transport& messages_;
  core::Device& device_;
  const LaneQueues* const lanes_;
  std::map<std::uint32_t, Message> under_way_;
  // Buffers in use until settle(), because copies to the device may still be queued. Every step therefore needs the
  // same number, regardless of timing. Page-locking more could wait for the device (RankTrainer::rehearse).
  std::vector<Staged> used_;
  std::multimap<std::size_t, Staged> spare_;
  std::vector<void*> pinned_;  // all page-locked buffers
};

// Runs a rank's OFFLOAD and LOAD tasks of activations (schedules/passes/passes.h).

class ActivationCopies {
 public:
  ActivationCopies(parallel::Memory& memory, const parallel::MakeStateRoom& make_room, workload::CopySlots slots)
      : slots_(std::move(slots)), away_(memory, make_room, slots_.room_bytes) {}

  // `kept`: the tensors of the task's part and microbatch, in the same order for both copies. Called by the thread of
  // lane copy.
  void run(const schedules::Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept) {
    const parallel::TensorsAway::Slot& slot = slots_.of_task[index];
    if (slot.bytes == 0) return;
    if (task.op == schedules::Op::offload) {
      away_.take(slot, kept);
    } else {
      away_.bring_back(slot, kept);
    }
  }

  std::int64_t moved_bytes() const { return away_.moved_bytes(); }  // so far
  std::int64_t room_bytes() const { return slots_.room_bytes; }

 private:
  workload::CopySlots slots_;
  parallel::TensorsAway away_;
};

// The messages of activations that one rank evicts to another and fetches back (EVICT, ASK, FETCH; at the other rank
// HOLD, ASKED, YIELD: schedules/step/step.h), in host memory. An eviction copies a stage's tensors into its message and
// frees them; the other rank keeps the message in a room of its own until it sends it back.
class EvictedActivations {
 public:
  // `bytes` of each task (workload::copied_bytes).
  EvictedActivations(parallel::Memory& memory, const schedules::RankStep& rank, std::vector<std::int64_t> bytes);

  // The message of a task that begins. `kept`: the tensors of the task's microbatch, in the same order for EVICT and
  // FETCH.
  kernels::In sent(const schedules::Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept);
  kernels::Out received(const schedules::Task& task, std::uint32_t index);
  // True until the step's last YIELD has ended. A rank that waited for all others meanwhile would wait for itself. Any
  // thread may call it.
  bool owes_answers() const { return answers_owed_ > 0; }
  void begin_step() { answers_owed_ = answers_; }
  void ended(const schedules::Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept);

 private:
  struct Left {
    std::size_t tensor;  // index in `kept`
    core::DType dtype;
    std::int64_t elems;
  };
  using Key = std::pair<std::int32_t, std::int32_t>;  // stage, microbatch
  parallel::Tensor& make_message(std::uint32_t index);

  parallel::Memory& memory_;
  const std::vector<std::int64_t> bytes_;
  const workload::CopySlots slots_;
  parallel::Tensor room_;
  const std::int64_t answers_;  // YIELDs per step
  std::atomic<std::int64_t> answers_owed_ = 0;
  std::byte question_{};  // content of an ASK
  std::map<Key, std::vector<Left>> left_;
  std::map<std::uint32_t, parallel::Tensor> messages_;  // in flight, of EVICT and FETCH
};

}  // namespace lockstep::trainer
