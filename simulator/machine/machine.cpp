#include "simulator/machine/machine.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/options.h"
#include "simulator/machine/json_fields.h"

namespace lockstep::simulator {

double Nccl::share_of_links(std::int64_t members) const {
  double share = 1;
  for (const auto& [from, of_links] : of_members) {
    if (static_cast<double>(members) >= from) share = of_links;
  }
  return share;
}

const Measured::Collective* Measured::find(std::string_view name, std::int64_t ranks) const {
  const auto found = std::find_if(collectives.begin(), collectives.end(),
                                  [&](const Collective& entry) { return entry.name == name && entry.ranks == ranks; });
  return found == collectives.end() ? nullptr : &*found;
}

double value_at(const Measured::Curve& curve, double at) {
  const auto above = std::lower_bound(curve.begin(), curve.end(), at,
                                      [](const auto& point, double wanted) { return point.first < wanted; });
  if (above == curve.begin()) return curve.front().second;
  if (above == curve.end()) return curve.back().second;
  const auto below = std::prev(above);
  const double part = (at - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

double share_at(const EfficiencyCurve& curve, double work) {
  if (curve.empty()) return 1;
  if (work <= curve.front().work) return curve.front().share;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const EfficiencyPoint& below = curve[i - 1];
    const EfficiencyPoint& above = curve[i];
    if (work > above.work) continue;
    const double way = std::log(work / below.work) / std::log(above.work / below.work);
    return below.share + way * (above.share - below.share);
  }
  return curve.back().share;
}

Machine load_machine(std::string_view name) {
  if (name.find('/') != std::string_view::npos || name.ends_with(".json")) {
    const std::string path(name);
    return parse_machine(core::text_of_file(path, "a JSON file (docs/machine_format.md)"), path);
  }
  std::vector<std::string_view> names;
  for (const EmbeddedMachine& machine : embedded_machines()) {
    if (machine.name == name) return parse_machine(machine.json, std::string(name) + ".json");
    names.emplace_back(machine.name);
  }
  throw core::unknown_name("machine: '" + std::string(name) + "' is not known", name, names,
                           ", or the path of a JSON file");
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const EmbeddedMachine& machine : embedded_machines()) names.emplace_back(machine.name);
  return names;
}

double Machine::taken_by_collectives() const {
  if (!nccl || device.multiprocessors == 0) return 0;
  return static_cast<double>(nccl->blocks) / device.multiprocessors;
}

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
