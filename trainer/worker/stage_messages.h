// Messages between pipeline stages. Memory of the host travels as it lies; that of another device by way of a copy on
// the host, so that any transport will do. Where work is queued the copies are, too, in the streams of the messages'
// lanes, beside the kernels: the host looks now and then whether they are done, and waits for none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/device.h"
#include "kernels/base/view.h"
#include "schedules/step/step.h"
#include "trainer/worker/lane_queues.h"

namespace lockstep::trainer {

class StageMessages {
 public:
  // The arguments outlive this. `lanes`: where work is queued.
  StageMessages(transports::Transport& messages, core::Device& device, const LaneQueues* lanes);
  ~StageMessages();
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // `task` is number `index` of its rank. The memory stays as it is until ended(). Where work is queued, its lane's
  // stream has waited for what makes it, or used it before.
  void send(std::uint32_t index, const schedules::Task& task, const kernels::In& what);
  void receive(std::uint32_t index, const schedules::Task& task, const kernels::Out& where);
  // Makes progress. After true the message is forgotten; what was received is there for what its lane's stream is
  // waited for from now on.
  bool ended(std::uint32_t index);
  void settle();  // returns when all copies are done

 private:
  // A copy on the host: page-locked where copies are queued.
  struct Staged {
    void* memory = nullptr;
    std::size_t size_bytes = 0;
    std::unique_ptr<core::Event> copied = {};
  };
  struct Message {
    bool is_send = false;
    schedules::Task task = {};
    void* on_device = nullptr;  // where it arrives
    Staged staged = {};
    std::vector<std::byte> on_host = {};  // where nothing is queued
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
  // Until settle(): copies to the device may be queued, and so a step needs as many as the one before, whatever is done
  // when. To page-lock more may wait for the device (RankTrainer::rehearse).
  std::vector<Staged> used_;
  std::multimap<std::size_t, Staged> spare_;
  std::vector<void*> pinned_;  // all that there is
};

}  // namespace lockstep::trainer
