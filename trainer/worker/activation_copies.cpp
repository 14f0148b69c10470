#include "trainer/worker/activation_copies.h"

#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace lockstep::trainer {

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
