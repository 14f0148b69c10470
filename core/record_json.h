// Conversion of record values to JSON. Included by sources only, because it exposes nlohmann's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"

// nlohmann's JSON calls these for types that it does not know. An empty optional becomes null; nlohmann also writes
// numbers that are not finite as null.
template <class T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(ordered_json& json, const std::optional<T>& value) {
    if (value) {
      json = *value;
    } else {
      json = nullptr;
    }
  }
};

// Makes an object whose names keep their order (core::Named).
template <class T>
struct nlohmann::adl_serializer<std::vector<std::pair<std::string, T>>> {
  static void to_json(ordered_json& json, const std::vector<std::pair<std::string, T>>& values) {
    json = ordered_json::object();
    for (const auto& [name, value] : values) json[name] = value;
  }
};

namespace lockstep::core {

using Json = nlohmann::ordered_json;

inline Json stats_json(const std::vector<double>& samples) {
  if (samples.empty()) return nullptr;
  const Summary s = summarize(samples);
  return {{"count", s.count}, {"median", s.median}, {"mean", s.mean}, {"min", s.min},       {"max", s.max},
          {"p5", s.p5},       {"p95", s.p95},       {"p99", s.p99},   {"ci_low", s.ci_low}, {"ci_high", s.ci_high}};
}

// Replaces bytes that are not UTF-8, which a file name may contain.
inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::core
