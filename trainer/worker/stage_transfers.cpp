#include "trainer/worker/stage_transfers.h"

#include <map>
#include <span>
#include <tuple>
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

CopySlots slots_of_copies(const schedules::RankStep& rank, const std::vector<std::int64_t>& bytes) {
  using parallel::TensorsAway;
  CopySlots slots{.of_task = std::vector<TensorsAway::Slot>(rank.tasks.size())};
  std::multimap<std::int64_t, std::int64_t> free;  // offsets by size
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, TensorsAway::Slot> away;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const schedules::Task& task = rank.tasks[i];
    if (!copies_activations(task) || bytes[i] == 0) continue;
    const std::int64_t size = (bytes[i] + TensorsAway::kAlign - 1) / TensorsAway::kAlign * TensorsAway::kAlign;
    TensorsAway::Slot& slot = slots.of_task[i];
    const std::tuple part(task.stage, task.microbatch, task.part);
    if (task.op == schedules::Op::load) {
      slot = away.at(part);
      away.erase(part);
      free.emplace(size, slot.offset);
      continue;
    }
    slot.bytes = bytes[i];
    if (const auto found = free.find(size); found != free.end()) {
      slot.offset = found->second;
      free.erase(found);
    } else {
      slot.offset = std::exchange(slots.room_bytes, slots.room_bytes + size);
    }
    LOCKSTEP_CHECK(away.emplace(part, slot).second, "a part is copied off the device once");
  }
  LOCKSTEP_CHECK(away.empty(), "everything copied off the device comes back");
  return slots;
}

}  // namespace lockstep::trainer
