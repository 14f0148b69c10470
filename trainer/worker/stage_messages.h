// Messages between pipeline stages. Memory of the host travels as it lies; that of another device by way of a copy on
// the host, so that any transport will do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "schedules/step/step.h"

namespace lockstep::trainer {

class StageMessages {
 public:
  // What is passed outlives this. `where`: the kernels that make what is sent, and use what is received.
  StageMessages(transports::Transport& messages, core::Device& device, const kernels::Context& where);

  // `task` is number `index` of its rank. The memory stays as it is until ended().
  void send(std::uint32_t index, const schedules::Task& task, const kernels::In& what);
  void receive(std::uint32_t index, const schedules::Task& task, const kernels::Out& where);
  // Makes progress. After true the message is forgotten.
  bool ended(std::uint32_t index);

 private:
  struct Message {
    transports::Request request;
    std::vector<std::byte> on_host;  // of another device's memory
    void* arrives_at = nullptr;      // on that device
  };
  transports::Transport& messages_;
  core::Device& device_;
  const kernels::Context where_;
  std::map<std::uint32_t, Message> under_way_;
};

}  // namespace lockstep::trainer
