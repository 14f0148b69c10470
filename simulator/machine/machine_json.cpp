#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "simulator/machine/json_fields.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {
namespace {

constexpr std::array kSharing{"one_at_a_time", "fair"};
constexpr std::array kNodeLinks{"nvlink", "pcie"};
constexpr std::array kGenerations{"volta", "ampere", "hopper", "blackwell"};
constexpr double kMostTaken = 0.9;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

EfficiencyCurve read_curve(JsonFields& fields, const char* name) {
  EfficiencyCurve curve;
  for (const auto& [work, share] : fields.pairs(name)) {
    const std::string point = "[" + std::to_string(work) + ", " + std::to_string(share) + "]";
    if (work <= 0 || share <= 0 || share > 1) fields.refuse(name, point, "work above 0 and a share above 0, at most 1");
    if (!curve.empty() && work <= curve.back().work) fields.refuse(name, point, "points in the order of their work");
    curve.push_back({work, share});
  }
  if (curve.empty()) fields.refuse(name, "no points", "one or more");
  return curve;
}

DeviceSpec read_device(JsonFields fields) {
  DeviceSpec device;
  device.name = fields.text("name");
  device.matrix_tflops = fields.positive("matrix_tflops");
  if (fields.has("fp8_tflops")) device.fp8_tflops = fields.number("fp8_tflops", 0, kNoLimit);
  device.vector_tflops = fields.positive("vector_tflops");
  device.memory_gbps = fields.positive("memory_gbps");
  device.memory_bytes = fields.integer("memory_bytes", 1);
  device.launch_us = fields.number("launch_us", 0, kNoLimit);
  if (fields.has("multiprocessors")) {
    device.multiprocessors = fields.int32("multiprocessors", 0);
  }
  device.product = read_curve(fields, "product");
  device.attention = read_curve(fields, "attention");
  device.memory = read_curve(fields, "memory");
  fields.done();
  return device;
}

// Reads an enum by its names, which are in the order of its values.
template <class Enum, std::size_t N>
Enum read_name(JsonFields& fields, const char* name, const std::array<const char*, N>& names) {
  const std::string text = fields.text(name);
  std::string allowed;
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names.at(i)) return static_cast<Enum>(i);
    allowed += (allowed.empty() ? "" : " ") + std::string(names.at(i));
  }
  fields.refuse(name, text, allowed);
}

double read_share(JsonFields& fields, const char* name) {
  const double share = fields.number(name, 0, 1);
  if (share == 0) fields.refuse(name, "0", "numbers above 0, at most 1");
  return share;
}

Torus read_torus(JsonFields fields, std::int32_t ranks) {
  Torus torus;
  torus.columns = fields.int32("columns", 2);
  torus.rows = fields.int32("rows", 2);
  if (std::int64_t{torus.columns} * torus.rows != ranks) {
    fields.refuse("rows", std::to_string(torus.rows),
                  "as many as make columns x rows the level's ranks, " + std::to_string(ranks));
  }
  torus.hop_us = fields.number("hop_us", 0, kNoLimit);
  fields.done();
  return torus;
}

NetworkLevel read_level(JsonFields& fields, const NetworkLevel* below) {
  NetworkLevel level;
  level.name = fields.text("name");
  level.ranks = fields.int32("ranks", 1);
  if (below != nullptr && (level.ranks <= below->ranks || level.ranks % below->ranks != 0)) {
    fields.refuse("ranks", std::to_string(level.ranks),
                  "multiples of the level below, " + std::to_string(below->ranks));
  }
  level.gbps = fields.positive("gbps");
  level.latency_us = fields.number("latency_us", 0, kNoLimit);
  level.efficiency = read_share(fields, "efficiency");
  level.collective_efficiency = read_share(fields, "collective_efficiency");
  level.oversubscription = fields.number("oversubscription", 1, kNoLimit);
  level.sharing = read_name<Sharing>(fields, "sharing", kSharing);
  if (fields.has("torus")) {
    if (below != nullptr) fields.refuse("torus", "on a level above others", "on the innermost level");
    if (level.oversubscription > 1) fields.refuse("torus", "with oversubscription", "with oversubscription 1");
    level.torus = read_torus(fields.object("torus"), level.ranks);
  }
  fields.done();
  return level;
}

// Pairs with ascending first numbers and second numbers above 0.
Measured::Curve read_times(JsonFields& fields, const char* name) {
  Measured::Curve times = fields.pairs(name);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto& [at, us] = times[i];
    if (at > 0 && us > 0 && (i == 0 || at > times[i - 1].first)) continue;
    fields.refuse(name, "[" + std::to_string(at) + ", " + std::to_string(us) + "]",
                  "numbers above 0, the first ones in their order");
  }
  if (times.empty()) fields.refuse(name, "nothing", "one or more");
  return times;
}

// Shares of a node's links by number of members, from two on.
std::vector<std::pair<double, double>> read_of_members(JsonFields& fields) {
  std::vector<std::pair<double, double>> shares = fields.pairs("of_members");
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto& [members, share] = shares[i];
    if (members >= 2 && share > 0 && share <= 1 && (i == 0 || members > shares[i - 1].first)) continue;
    fields.refuse("of_members", "[" + std::to_string(members) + ", " + std::to_string(share) + "]",
                  "members from 2 on in their order, and a share above 0, at most 1");
  }
  return shares;
}

Nccl read_nccl(JsonFields fields) {
  Nccl nccl;
  nccl.generation = read_name<GpuGeneration>(fields, "generation", kGenerations);
  nccl.inside = read_name<NodeLink>(fields, "inside", kNodeLinks);
  nccl.channels = fields.number("channels", 1, kNoLimit);
  nccl.channel_gbps = fields.positive("channel_gbps");
  nccl.nvls_search_gbps = fields.number("nvls_search_gbps", 0, kNoLimit);
  nccl.start_us = fields.number("start_us", 0, kNoLimit);
  nccl.simple_step_us = fields.number("simple_step_us", 0, kNoLimit);
  nccl.ll = read_share(fields, "ll");
  nccl.ll128 = read_share(fields, "ll128");
  nccl.last_copy = fields.number("last_copy", 0, kNoLimit);
  nccl.nvls = fields.number("nvls", 0, 1);
  if ((nccl.nvls > 0) != (nccl.nvls_search_gbps > 0)) {
    fields.refuse("nvls_search_gbps", std::to_string(nccl.nvls_search_gbps), "above 0 if and only if nvls is");
  }
  nccl.blocks = fields.int32("blocks", 0);
  nccl.of_members = read_of_members(fields);
  fields.done();
  return nccl;
}

Host read_host(JsonFields fields) {
  const Host host{.operator_us = fields.positive("operator_us"), .graph_us = fields.number("graph_us", 0, kNoLimit)};
  fields.done();
  return host;
}

Measured read_measured(JsonFields fields) {
  Measured measured;
  measured.cores = fields.int32("cores", 1);
  measured.threads = fields.int32("threads", 1);
  if (measured.threads > measured.cores) {
    fields.refuse("threads", std::to_string(measured.threads),
                  "as many as there are cores, " + std::to_string(measured.cores) + ", or fewer");
  }
  for (JsonFields& kernel : fields.objects("kernels")) {
    const std::string name = kernel.text("kernel");
    const Measured::Curve us = read_times(kernel, "us");
    if (us.front().first != 1) kernel.refuse("us", "no time of one copy", "copies from 1");
    if (!measured.kernels.emplace(name, us).second) {
      kernel.refuse("kernel", "'" + name + "' is there twice", "one entry for each kernel");
    }
    kernel.done();
  }
  for (JsonFields& entry : fields.objects("collectives")) {
    const std::string name = entry.text("collective");
    const auto ranks = entry.int32("ranks", 2);
    if (measured.find(name, ranks) != nullptr) {
      entry.refuse("collective", "'" + name + "' of " + std::to_string(ranks) + " ranks is there twice",
                   "one entry for each collective and number of ranks");
    }
    measured.collectives.push_back({name, ranks, read_times(entry, "us")});
    entry.done();
  }
  fields.done();
  return measured;
}

nlohmann::ordered_json json_of(const Nccl& nccl) {
  return {{"generation", kGenerations.at(static_cast<std::size_t>(nccl.generation))},
          {"inside", kNodeLinks.at(static_cast<std::size_t>(nccl.inside))},
          {"channels", nccl.channels},
          {"channel_gbps", nccl.channel_gbps},
          {"nvls_search_gbps", nccl.nvls_search_gbps},
          {"start_us", nccl.start_us},
          {"simple_step_us", nccl.simple_step_us},
          {"ll", nccl.ll},
          {"ll128", nccl.ll128},
          {"last_copy", nccl.last_copy},
          {"nvls", nccl.nvls},
          {"blocks", nccl.blocks},
          {"of_members", nccl.of_members}};
}

nlohmann::ordered_json json_of(const Measured& measured) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const auto& [kernel, us] : measured.kernels) kernels.push_back({{"kernel", kernel}, {"us", us}});
  nlohmann::ordered_json collectives = nlohmann::ordered_json::array();
  for (const Measured::Collective& entry : measured.collectives) {
    collectives.push_back({{"collective", entry.name}, {"ranks", entry.ranks}, {"us", entry.us_of_bytes}});
  }
  return {{"cores", measured.cores}, {"threads", measured.threads}, {"kernels", kernels}, {"collectives", collectives}};
}

nlohmann::ordered_json json_of(const EfficiencyCurve& curve) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const EfficiencyPoint& point : curve) points.push_back({point.work, point.share});
  return points;
}

nlohmann::ordered_json json_of(const DeviceSpec& device) {
  return {{"name", device.name},
          {"matrix_tflops", device.matrix_tflops},
          {"fp8_tflops", device.fp8_tflops},
          {"vector_tflops", device.vector_tflops},
          {"memory_gbps", device.memory_gbps},
          {"memory_bytes", device.memory_bytes},
          {"launch_us", device.launch_us},
          {"multiprocessors", device.multiprocessors},
          {"product", json_of(device.product)},
          {"attention", json_of(device.attention)},
          {"memory", json_of(device.memory)}};
}

nlohmann::ordered_json json_of(const NetworkLevel& level) {
  nlohmann::ordered_json json{{"name", level.name},
                              {"ranks", level.ranks},
                              {"gbps", level.gbps},
                              {"latency_us", level.latency_us},
                              {"efficiency", level.efficiency},
                              {"collective_efficiency", level.collective_efficiency},
                              {"oversubscription", level.oversubscription},
                              {"sharing", kSharing.at(static_cast<std::size_t>(level.sharing))}};
  if (level.torus) {
    json["torus"] = {{"columns", level.torus->columns}, {"rows", level.torus->rows}, {"hop_us", level.torus->hop_us}};
  }
  return json;
}

// Prints one field per line; values nested deeper than a list's entries stay on one line.
std::string text_of(const nlohmann::ordered_json& object, const std::string& indent) {
  const std::string inner = indent + "  ";
  const auto list = [&](const nlohmann::ordered_json& entries) {
    std::string text;
    for (const auto& entry : entries) {
      text += text.empty() ? "\n" : ",\n";
      text += inner;
      text += "  ";
      text += entry.dump();
    }
    return "[" + text + "\n" + inner + "]";
  };
  std::string text;
  for (const auto& [name, value] : object.items()) {
    const bool entries = value.is_array() && !value.empty() && !value.front().is_array();
    text += text.empty() ? "\n" : ",\n";
    text += inner;
    text += "\"" + name + "\": ";
    text += value.is_object() ? text_of(value, inner) : entries ? list(value) : value.dump();
  }
  return "{" + text + "\n" + indent + "}";
}

}  // namespace

Machine parse_machine(std::string_view json, const std::string& where) {
  JsonFields fields = JsonFields::of_text(json, where);
  Machine machine;
  machine.name = fields.text("name");
  machine.sources = fields.texts("sources");
  machine.device = read_device(fields.object("device"));
  for (JsonFields& level : fields.objects("levels")) {
    machine.levels.push_back(read_level(level, machine.levels.empty() ? nullptr : &machine.levels.back()));
  }
  if (machine.levels.empty()) fields.refuse("levels", "none", "one or more");
  machine.host_gbps = fields.positive("host_gbps");
  if (fields.has("nvme_gbps")) machine.nvme_gbps = fields.positive("nvme_gbps");
  if (fields.has("host_memory_gbps")) machine.host_memory_gbps = fields.positive("host_memory_gbps");
  if (fields.has("host_memory_bytes")) machine.host_memory_bytes = fields.positive("host_memory_bytes");
  if (fields.has("nvme_bytes")) machine.nvme_bytes = fields.positive("nvme_bytes");
  if (fields.has("host")) machine.host = read_host(fields.object("host"));
  if (fields.has("nccl") && machine.levels.front().torus) {
    fields.refuse("nccl", "given, and the innermost level is a torus",
                  "without nccl, whose nodes have a switch or NVLink");
  }
  if (fields.has("nccl")) machine.nccl = read_nccl(fields.object("nccl"));
  if (fields.has("measured")) machine.measured = read_measured(fields.object("measured"));
  if (machine.taken_by_collectives() > kMostTaken) {
    fields.refuse("nccl.blocks", std::to_string(machine.nccl->blocks), "at most 0.9 of device.multiprocessors");
  }
  fields.done();
  return machine;
}

std::string to_json(const Machine& machine) {
  nlohmann::ordered_json levels = nlohmann::ordered_json::array();
  for (const NetworkLevel& level : machine.levels) levels.push_back(json_of(level));
  nlohmann::ordered_json all{{"name", machine.name},
                             {"sources", machine.sources},
                             {"device", json_of(machine.device)},
                             {"levels", levels},
                             {"host_gbps", machine.host_gbps}};
  if (machine.nvme_gbps > 0) all["nvme_gbps"] = machine.nvme_gbps;
  if (machine.host_memory_gbps > 0) all["host_memory_gbps"] = machine.host_memory_gbps;
  if (machine.host_memory_bytes > 0) all["host_memory_bytes"] = machine.host_memory_bytes;
  if (machine.nvme_bytes > 0) all["nvme_bytes"] = machine.nvme_bytes;
  if (machine.host.operator_us > 0) {
    all["host"] = {{"operator_us", machine.host.operator_us}, {"graph_us", machine.host.graph_us}};
  }
  if (machine.nccl) all["nccl"] = json_of(*machine.nccl);
  if (machine.measured.cores > 0) all["measured"] = json_of(machine.measured);
  return text_of(all, "") + "\n";
}

}  // namespace lockstep::simulator
