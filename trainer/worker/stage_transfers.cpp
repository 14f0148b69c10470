#include "trainer/worker/stage_transfers.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"

namespace lockstep::trainer {

StageMessages::StageMessages(transports::Transport& messages, core::Device& device, const LaneQueues* lanes)
    : messages_(messages), device_(device), lanes_(lanes) {}

StageMessages::~StageMessages() {
  try {
    for (void* memory : pinned_) device_.release_pinned(memory);
  } catch (const core::Error&) {
    // The device has failed before; its memory is freed with the process.
  }
}

void StageMessages::send(std::uint32_t index, const schedules::Task& task, const kernels::In& what) {
  Message& message = under_way_[index];
  message.is_send = true;
  message.task = task;
  const std::size_t size_bytes = kernels::size_bytes(what.dtype, what.elems);
  if (queues()) {
    message.staged = take(size_bytes);
    core::Stream& stream = lanes_->stream(task.lane);
    device_.copy_on(stream, message.staged.memory, what.data, size_bytes);
    message.staged.copied->record(stream);
    return;
  }
  std::span<const std::byte> bytes{static_cast<const std::byte*>(what.data), size_bytes};
  if (!device_.is_host_memory()) {
    message.on_host.resize(size_bytes);
    device_.copy_to_host(message.on_host.data(), what.data, size_bytes);
    bytes = message.on_host;
  }
  message.request = messages_.send(task.peer, task.tag, bytes);
  message.posted = true;
}

void StageMessages::receive(std::uint32_t index, const schedules::Task& task, const kernels::Out& where) {
  Message& message = under_way_[index];
  message.task = task;
  const std::size_t size_bytes = kernels::size_bytes(where.dtype, where.elems);
  std::span<std::byte> bytes{static_cast<std::byte*>(where.data), size_bytes};
  if (queues()) {
    message.staged = take(size_bytes);
    bytes = {static_cast<std::byte*>(message.staged.memory), size_bytes};
    message.on_device = where.data;
  } else if (!device_.is_host_memory()) {
    message.on_host.resize(size_bytes);
    bytes = message.on_host;
    message.on_device = where.data;
  }
  message.request = messages_.recv(task.peer, task.tag, bytes);
  message.posted = true;
}

bool StageMessages::ended(std::uint32_t index) {
  const auto found = under_way_.find(index);
  Message& message = found->second;
  if (!message.posted && message.staged.copied->done()) post(message);
  if (!message.posted || !messages_.done(message.request)) return false;
  if (!message.is_send) arrived(message);
  if (queues()) used_.push_back(std::move(message.staged));
  under_way_.erase(found);
  return true;
}

void StageMessages::post(Message& message) {
  const std::span<const std::byte> bytes{static_cast<const std::byte*>(message.staged.memory),
                                         message.staged.size_bytes};
  message.request = messages_.send(message.task.peer, message.task.tag, bytes);
  message.posted = true;
}

void StageMessages::arrived(Message& message) {
  if (queues()) {
    core::Stream& stream = lanes_->stream(message.task.lane);
    device_.copy_on(stream, message.on_device, message.staged.memory, message.staged.size_bytes);
    message.staged.copied->record(stream);
  } else if (message.on_device != nullptr) {
    device_.copy_to_device(message.on_device, message.on_host.data(), message.on_host.size());
  }
}

StageMessages::Staged StageMessages::take(std::size_t size_bytes) {
  const auto found = spare_.find(size_bytes);
  if (found != spare_.end()) {
    Staged staged = std::move(found->second);
    spare_.erase(found);
    return staged;
  }
  Staged staged{.memory = device_.allocate_pinned(size_bytes), .size_bytes = size_bytes};
  pinned_.push_back(staged.memory);
  staged.copied = device_.make_event();
  return staged;
}

void StageMessages::settle() {
  if (pinned_.empty()) return;  // no message is copied
  lanes_->stream(schedules::Lane::send).synchronize();
  lanes_->stream(schedules::Lane::receive).synchronize();
  for (Staged& staged : used_) spare_.emplace(staged.size_bytes, std::move(staged));
  used_.clear();
}

using schedules::Op;
using schedules::Task;

EvictedActivations::EvictedActivations(parallel::Memory& memory, const schedules::RankStep& rank,
                                       std::vector<std::int64_t> bytes)
    : memory_(memory),
      bytes_(std::move(bytes)),
      slots_(workload::slots_of_copies(rank, bytes_)),
      room_(memory.make(parallel::MemoryKind::activations, core::DType::u8, slots_.room_bytes)),
      answers_(
          std::count_if(rank.tasks.begin(), rank.tasks.end(), [](const Task& task) { return task.op == Op::yield; })) {}

parallel::Tensor& EvictedActivations::make_message(std::uint32_t index) {
  return messages_[index] = memory_.make(parallel::MemoryKind::buffers, core::DType::u8, bytes_[index]);
}

kernels::In EvictedActivations::sent(const Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept) {
  if (task.op == Op::ask) return {&question_, core::DType::u8, 1};
  if (task.op == Op::yield) return room_.in(slots_.of_task[index].offset, bytes_[index]);
  const parallel::Tensor& message = make_message(index);
  std::vector<Left>& left = left_[{task.stage, task.microbatch}];
  left.clear();
  auto* to = message.as<std::byte>();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]->given()) continue;
    left.push_back({i, kept[i]->dtype(), kept[i]->elems()});
    const auto* const from = kept[i]->as<std::byte>();
    to = std::copy_n(from, kept[i]->bytes(), to);
    kept[i]->reset();
  }
  LOCKSTEP_CHECK(to == message.as<std::byte>() + message.bytes(), "an eviction of the bytes that were predicted");
  return message.in();
}

kernels::Out EvictedActivations::received(const Task& task, std::uint32_t index) {
  if (task.op == Op::asked) return {&question_, core::DType::u8, 1};
  if (task.op == Op::hold) return room_.out(slots_.of_task[index].offset, bytes_[index]);
  return make_message(index).out();
}

void EvictedActivations::ended(const Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept) {
  if (task.op == Op::fetch) {
    const auto* from = messages_.at(index).as<std::byte>();
    for (const Left& left : left_.at({task.stage, task.microbatch})) {
      parallel::Tensor& tensor = *kept[left.tensor];
      tensor = memory_.make(parallel::MemoryKind::activations, left.dtype, left.elems);
      std::copy_n(from, tensor.bytes(), tensor.as<std::byte>());
      from += tensor.bytes();
    }
  }
  if (task.op == Op::yield) --answers_owed_;
  messages_.erase(index);
}

}  // namespace lockstep::trainer
