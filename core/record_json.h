// What the sources that write records as JSON share. Included by sources only, as it shows nlohmann's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule_record.h"
#include "core/statistics.h"
#include "core/training_record.h"

namespace lockstep::core {

using Json = nlohmann::ordered_json;

// Null where there is nothing. Numbers that are not finite become null as well (nlohmann's way).
template <typename T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json nullable_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

inline Json stats_json(const std::vector<double>& samples) {
  if (samples.empty()) return nullptr;
  const Summary s = summarize(samples);
  return {{"count", s.count}, {"median", s.median}, {"mean", s.mean}, {"min", s.min},       {"max", s.max},
          {"p5", s.p5},       {"p95", s.p95},       {"p99", s.p99},   {"ci_low", s.ci_low}, {"ci_high", s.ci_high}};
}

// Bytes that are not UTF-8, as a file's name may hold, are replaced.
inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

inline Json object_of(const NamedNumbers& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

// What records of steps share.
inline Json model_json(const ModelRecord& model) {
  return {{"name", model.name}, {"parameters", model.parameters}, {"numbers", object_of(model.numbers)}};
}

inline Json layout_json(const LayoutRecord& layout) {
  return {{"text", layout.text}, {"numbers", Json(layout.numbers)}};
}

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
