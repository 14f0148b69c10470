#include "trainer/worker/stage_messages.h"

#include <span>

#include "parallel/parameters/device_memory.h"

namespace lockstep::trainer {

StageMessages::StageMessages(transports::Transport& messages, core::Device& device, const kernels::Context& where)
    : messages_(messages), device_(device), where_(where) {}

void StageMessages::send(std::uint32_t index, const schedules::Task& task, const kernels::In& what) {
  Message& message = under_way_[index];
  std::span<const std::byte> bytes{static_cast<const std::byte*>(what.data),
                                   kernels::size_bytes(what.dtype, what.elems)};
  if (!device_.is_host_memory()) {
    message.on_host.resize(bytes.size());
    parallel::finish(where_);  // copies wait for no kernel
    device_.copy_to_host(message.on_host.data(), bytes.data(), bytes.size());
    bytes = message.on_host;
  }
  message.request = messages_.send(task.peer, task.tag, bytes);
}

void StageMessages::receive(std::uint32_t index, const schedules::Task& task, const kernels::Out& where) {
  Message& message = under_way_[index];
  std::span<std::byte> bytes{static_cast<std::byte*>(where.data), kernels::size_bytes(where.dtype, where.elems)};
  if (!device_.is_host_memory()) {
    message.on_host.resize(bytes.size());
    message.arrives_at = where.data;
    bytes = message.on_host;
  }
  message.request = messages_.recv(task.peer, task.tag, bytes);
}

bool StageMessages::ended(std::uint32_t index) {
  const auto found = under_way_.find(index);
  Message& message = found->second;
  if (!messages_.done(message.request)) return false;
  if (message.arrives_at != nullptr) {
    parallel::finish(where_);  // kernels of before may still use the memory
    device_.copy_to_device(message.arrives_at, message.on_host.data(), message.on_host.size());
  }
  under_way_.erase(found);
  return true;
}

}  // namespace lockstep::trainer
