#include "simulator/machine/record_lines.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

using nlohmann::json;

// Null or missing fields read as empty.
std::string text_of(const json& line, const char* name) {
  return line.contains(name) && line[name].is_string() ? line[name].get<std::string>() : "";
}
double number_of(const json& line, const char* name) {
  return line.contains(name) && line[name].is_number() ? line[name].get<double>() : 0;
}

void take_run(RecordLines& into, const json& line) {
  if (!into.machine.empty() || !line.contains("machine")) return;
  const json& machine = line["machine"];
  into.machine = text_of(machine, "cpu");
  into.memory_bytes = static_cast<std::int64_t>(number_of(machine, "memory_bytes"));
  into.cores = static_cast<int>(number_of(machine, "cores"));
  if (machine.contains("gpus") && !machine["gpus"].empty()) into.machine = machine["gpus"][0].get<std::string>();
}

void take_kernel(RecordLines& into, const json& line) {
  KernelLine kernel{.kernel = text_of(line, "kernel"),
                    .dtype = text_of(line, "dtype"),
                    .device = text_of(line, "device"),
                    .cache = text_of(line, "cache"),
                    .bound = text_of(line, "bound"),
                    .signature = text_of(line, "kernel"),
                    .threads = static_cast<int>(number_of(line, "threads")),
                    .flops = number_of(line, "flops"),
                    .bytes = number_of(line, "bytes")};
  if (line.contains("copies")) kernel.copies = static_cast<int>(number_of(line, "copies"));
  if (line.contains("operands")) {
    for (const json& operand : line["operands"]) {
      const auto bytes = static_cast<std::int64_t>(number_of(operand, "bytes"));
      kernel.signature += " " + text_of(operand, "dtype") + ":" + std::to_string(bytes);
    }
  }
  kernel.signature += " flops:" + std::to_string(std::llround(kernel.flops));
  if (line.contains("stats") && line["stats"].is_object()) kernel.median_us = number_of(line["stats"], "median");
  if (text_of(line, "status") == "ok" && kernel.median_us > 0) into.kernels.push_back(kernel);
}

void take_ceiling(RecordLines& into, const json& line) {
  into.ceilings.push_back({text_of(line, "name"), text_of(line, "level"), text_of(line, "dtype"),
                           text_of(line, "device"), static_cast<int>(number_of(line, "threads")),
                           number_of(line, "value")});
}

void take_row(RecordLines& into, const json& line) {
  if (text_of(line, "status") != "ok" || text_of(line, "basis") != "measured") return;
  const bool is_nccl = text_of(line, "executor") == "library" && text_of(line, "transport") == "nccl";
  const bool has_plan = line.contains("plan") && line["plan"].is_object();
  if (!has_plan && !is_nccl) return;
  const json plan = has_plan ? line["plan"] : json::object();
  const RowLine row{.collective = text_of(line, "collective"),
                    .algorithm = text_of(line, "algorithm"),
                    .ranks = static_cast<int>(number_of(line, "ranks")),
                    .time_us = number_of(line, "time_us"),
                    .steps = number_of(plan, "steps"),
                    .wire_bytes = number_of(plan, "wire_bytes_max"),
                    .bytes = number_of(line, "bytes"),
                    .transport = text_of(line, "transport")};
  if (row.time_us > 0 && row.steps > 0) into.rows.push_back(row);
  if (row.time_us > 0 && row.bytes > 0 && is_nccl) into.nccl_rows.push_back(row);
}

void take(RecordLines& into, const json& line) {
  const std::string kind = text_of(line, "record");
  if (kind == "run") take_run(into, line);
  if (kind == "kernel") take_kernel(into, line);
  if (kind == "ceiling") take_ceiling(into, line);
  if (kind == "row") take_row(into, line);
}

}  // namespace

RecordLines read_record_lines(std::string_view text, const std::string& where) {
  RecordLines found;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \r") == std::string_view::npos) continue;
    const json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("record")) {
      throw core::usage_error(where + ": line " + std::to_string(number) +
                              " is not a record; allowed: lines of docs/record_format.md");
    }
    take(found, parsed);
  }
  return found;
}

}  // namespace lockstep::simulator
