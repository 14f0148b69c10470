#include "trainer/worker/activation_copies.h"

#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace lockstep::trainer {

CopyPlaces places_of_copies(const schedules::RankStep& rank, const std::vector<std::int64_t>& bytes) {
  using parallel::TensorsAway;
  CopyPlaces places{.of_task = std::vector<TensorsAway::Place>(rank.tasks.size())};
  std::multimap<std::int64_t, std::int64_t> free;  // offsets by size
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, TensorsAway::Place> away;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const schedules::Task& task = rank.tasks[i];
    if (!copies_activations(task) || bytes[i] == 0) continue;
    const std::int64_t size = (bytes[i] + TensorsAway::kAlign - 1) / TensorsAway::kAlign * TensorsAway::kAlign;
    TensorsAway::Place& place = places.of_task[i];
    const std::tuple part(task.stage, task.microbatch, task.part);
    if (task.op == schedules::Op::load) {
      place = away.at(part);
      away.erase(part);
      free.emplace(size, place.offset);
      continue;
    }
    place.bytes = bytes[i];
    if (const auto found = free.find(size); found != free.end()) {
      place.offset = found->second;
      free.erase(found);
    } else {
      place.offset = std::exchange(places.room_bytes, places.room_bytes + size);
    }
    LOCKSTEP_CHECK(away.emplace(part, place).second, "a part is copied off the device once");
  }
  LOCKSTEP_CHECK(away.empty(), "everything copied off the device comes back");
  return places;
}

}  // namespace lockstep::trainer
