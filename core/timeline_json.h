// What records of steps share. Included by sources only, as it shows nlohmann's JSON.
#pragma once

#include "core/record_json.h"
#include "core/schedule_record.h"

namespace lockstep::core {

inline Json bubbles_json(const BubblesRecord& bubbles) {
  return {{"of_ideal", bubbles.of_ideal},
          {"of_makespan", bubbles.of_makespan},
          {"of_own_span", bubbles.of_own_span},
          {"own_of_ideal", bubbles.own_of_ideal}};
}

inline Json timeline_json(const TimelineRecord& timeline) {
  Json ranks = Json::array();
  for (const auto& tasks : timeline) {
    Json list = Json::array();
    for (const TaskRecord& t : tasks) {
      list.push_back({t.lane, t.op, t.stage, t.microbatch, t.part, t.start_ms, t.end_ms});
    }
    ranks.push_back(std::move(list));
  }
  return {{"unit", "ms"}, {"ranks", std::move(ranks)}};
}

inline Json memory_json(const std::optional<MemoryRecord>& memory) {
  if (!memory) return nullptr;
  Json ranks = Json::array();
  for (const auto& kinds : memory->of_rank) {
    Json rank = Json::object();
    for (const auto& [kind, points] : kinds) {
      Json list = Json::array();
      for (const MemoryPoint& point : points) list.push_back({point.time_ms, point.value});
      rank[kind] = std::move(list);
    }
    ranks.push_back(std::move(rank));
  }
  return {{"unit", memory->unit}, {"of_rank", std::move(ranks)}};
}

}  // namespace lockstep::core
