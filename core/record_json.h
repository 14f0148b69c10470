// How the values of records become JSON. Included by sources only, as it shows nlohmann's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"

// nlohmann asks these for what it does not know itself. Null where there is nothing; numbers that are not finite become
// null as well (nlohmann's way).
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

// An object whose names keep their order (core::Named).
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

// Bytes that are not UTF-8, as a file's name may hold, are replaced.
inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::core
