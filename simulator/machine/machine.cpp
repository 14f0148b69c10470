#include "simulator/machine/machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "simulator/machine/embedded.h"

namespace lockstep::simulator {
namespace {

Machine load_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw core::usage_error("machine: " + path + ": cannot be read");
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  return parse_machine(json, path);
}

}  // namespace

double Nccl::share_of_links(std::int64_t members) const {
  double share = 1;
  for (const auto& [from, of_links] : of_members) {
    if (static_cast<double>(members) >= from) share = of_links;
  }
  return share;
}

const Measured::Collective* Measured::find(std::string_view name, std::int64_t ranks) const {
  const auto found = std::find_if(collectives.begin(), collectives.end(),
                                  [&](const Collective& one) { return one.name == name && one.ranks == ranks; });
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
  if (name.find('/') != std::string_view::npos || name.ends_with(".json")) return load_file(std::string(name));
  std::string names;
  for (const EmbeddedMachine& machine : embedded_machines()) {
    if (machine.name == name) return parse_machine(machine.json, std::string(name) + ".json");
    names += " " + std::string(machine.name);
  }
  throw core::usage_error("machine: '" + std::string(name) + "' is not known; allowed:" + names +
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

}  // namespace lockstep::simulator
