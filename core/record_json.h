// JSON: record values written, and files of users read. Included by sources only, because it exposes nlohmann's JSON.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
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

template <class... T>
struct nlohmann::adl_serializer<std::variant<T...>> {
  static void to_json(ordered_json& json, const std::variant<T...>& value) {
    std::visit([&](const auto& held) { json = held; }, value);
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

// The deepest nesting that is read. nlohmann's JSON copies and prints a value by calling itself for each level, which
// ends the process at some ten thousand of them.
inline constexpr int kDeepestJson = 100;

// Why nlohmann's parser refuses a text, without the name of the exception, which it puts first in brackets.
inline std::string reason_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

// Messages quote names of a file and must stay one line.
inline bool has_control_character(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::iscntrl(c) != 0; });
}

// Parses a text of a user. Throws a usage Error that begins with `where` if it is not JSON, has a number that no double
// can hold or a name with a control character, or is nested more deeply than kDeepestJson.
template <class J = nlohmann::json>
J parse_json(std::string_view text, const std::string& where) {
  const auto check = [&](int depth, typename J::parse_event_t event, J& parsed) {
    if (depth > kDeepestJson)
      throw usage_error(where + ": nested more deeply than " + std::to_string(kDeepestJson) + " levels");
    if (event == J::parse_event_t::key && has_control_character(parsed.template get_ref<const std::string&>()))
      throw usage_error(where + ": name " + parsed.dump() + "; allowed: names without control characters");
    return true;
  };
  try {
    return J::parse(text, check);
  } catch (const typename J::exception& error) {
    throw usage_error(where + ": not JSON: " + reason_of(error));
  }
}

// The number, if it is an integer within these limits. (nlohmann's get<int>() also takes 1.5, and converts 1e300 with
// undefined behaviour.)
template <class J>
std::optional<std::int64_t> integer_in(const J& value, std::int64_t min, std::int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.template get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return std::nullopt;
  }
  const auto number = value.template get<std::int64_t>();
  return number < min || number > max ? std::nullopt : std::optional(number);
}

}  // namespace lockstep::core
