#include "simulator/machine/vary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

using Json = nlohmann::ordered_json;

bool is_curve(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_array();
}

double largest_share(const Json& curve) {
  double largest = 0;
  for (const Json& point : curve) largest = std::max(largest, point.at(1).get<double>());
  return largest;
}

template <class Visit>
void visit_numbers(Json& value, const std::string& path, const Visit& visit) {
  if (value.is_number() || is_curve(value)) return visit(path, value);
  const auto inside = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  if (value.is_object()) {
    for (auto& [name, inner] : value.items()) {
      if (path.empty() && name == "measured") continue;
      visit_numbers(inner, inside(name), visit);
    }
  }
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) visit_numbers(value[i], inside(std::to_string(i)), visit);
  }
}

void set(Json& number, double value) {
  if (is_curve(number)) {
    const double factor = value / largest_share(number);
    for (Json& point : number) point.at(1) = point.at(1).get<double>() * factor;
  } else if (number.is_number_integer() && value == std::floor(value)) {
    number = static_cast<std::int64_t>(value);
  } else {
    number = value;
  }
}

}  // namespace

std::vector<MachineNumber> numbers_of(const Machine& machine) {
  Json json = Json::parse(to_json(machine));
  std::vector<MachineNumber> found;
  visit_numbers(json, "", [&](const std::string& path, const Json& value) {
    const bool whole = path.ends_with(".ranks") || path.ends_with("_bytes") || path.ends_with(".multiprocessors") ||
                       path.ends_with(".blocks");
    found.push_back({path, is_curve(value) ? largest_share(value) : value.get<double>(), whole});
  });
  return found;
}

Machine with_number(const Machine& machine, std::string_view path, double value) {
  Json json = Json::parse(to_json(machine));
  bool known = false;
  std::string names;
  visit_numbers(json, "", [&](const std::string& at, Json& number) {
    names += " " + at;
    if (at != path) return;
    known = true;
    set(number, value);
  });
  if (!known) {
    throw core::usage_error("machine: '" + std::string(path) + "' is not a number of " + machine.name +
                            "; allowed:" + names);
  }
  Machine changed = parse_machine(json.dump(), machine.name);
  std::string shown = Json(value).dump();
  if (shown.ends_with(".0")) shown.resize(shown.size() - 2);
  changed.name += ", " + std::string(path) + "=" + shown;
  return changed;
}

}  // namespace lockstep::simulator
