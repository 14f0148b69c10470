#include "simulator/machine/machine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/options.h"
#include "core/record_json.h"
#include "simulator/machine/json_fields.h"

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
// Counts of bytes and FLOPs may be written as 1e9.
std::int64_t whole_number_of(const json& line, const char* name, double most = 0x1p62) {
  const double value = number_of(line, name);
  if (value >= 0 && value <= most) return std::llround(value);
  throw core::usage_error(std::string(name) + " is " + line[name].dump() + "; allowed: 0 to " +
                          std::to_string(std::llround(most)));
}
int int_of(const json& line, const char* name) {
  return static_cast<int>(whole_number_of(line, name, 0x1p30));
}

void take_run(RecordLines& into, const json& line) {
  if (!into.machine.empty() || !line.contains("machine")) return;
  const json& machine = line["machine"];
  into.machine = text_of(machine, "cpu");
  into.memory_bytes = whole_number_of(machine, "memory_bytes");
  into.cores = int_of(machine, "cores");
  const bool has_gpu = machine.contains("gpus") && machine["gpus"].is_array() && !machine["gpus"].empty();
  if (has_gpu && machine["gpus"][0].is_string()) into.machine = machine["gpus"][0].get<std::string>();
}

void take_kernel(RecordLines& into, const json& line) {
  KernelLine kernel{.kernel = text_of(line, "kernel"),
                    .dtype = text_of(line, "dtype"),
                    .device = text_of(line, "device"),
                    .cache = text_of(line, "cache"),
                    .bound = text_of(line, "bound"),
                    .signature = text_of(line, "kernel"),
                    .threads = int_of(line, "threads"),
                    .flops = number_of(line, "flops"),
                    .bytes = number_of(line, "bytes")};
  if (line.contains("copies")) kernel.copies = int_of(line, "copies");
  if (line.contains("operands")) {
    for (const json& operand : line["operands"]) {
      const std::int64_t bytes = whole_number_of(operand, "bytes");
      kernel.signature += " " + text_of(operand, "dtype") + ":" + std::to_string(bytes);
    }
  }
  kernel.signature += " flops:" + std::to_string(whole_number_of(line, "flops"));
  if (line.contains("stats") && line["stats"].is_object()) kernel.median_us = number_of(line["stats"], "median");
  if (text_of(line, "status") == "ok" && kernel.median_us > 0) into.kernels.push_back(kernel);
}

void take_ceiling(RecordLines& into, const json& line) {
  into.ceilings.push_back({text_of(line, "name"), text_of(line, "level"), text_of(line, "dtype"),
                           text_of(line, "device"), int_of(line, "threads"), number_of(line, "value")});
}

void take_row(RecordLines& into, const json& line) {
  if (text_of(line, "status") != "ok" || text_of(line, "basis") != "measured") return;
  const bool is_nccl = text_of(line, "executor") == "library" && text_of(line, "transport") == "nccl";
  const bool has_plan = line.contains("plan") && line["plan"].is_object();
  if (!has_plan && !is_nccl) return;
  const json plan = has_plan ? line["plan"] : json::object();
  const RowLine row{.collective = text_of(line, "collective"),
                    .algorithm = text_of(line, "algorithm"),
                    .ranks = int_of(line, "ranks"),
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
    const std::string place = where + ": line " + std::to_string(number);
    const json parsed = core::parse_json(line, place);
    if (!parsed.is_object() || !parsed.contains("record")) {
      throw core::usage_error(place + " is not a record; allowed: lines of docs/record_format.md");
    }
    try {
      take(found, parsed);
    } catch (const core::Error& error) {
      throw core::usage_error(place + ": " + error.what());
    }
  }
  return found;
}

namespace {

// The device to calibrate, and its number of threads.
struct Target {
  std::string device;
  int threads = 1;
  std::string dtype;  // dtype of products: a 16-bit type if measured
};

[[noreturn]] void missing(const std::string& where, const std::string& what, const std::string& how) {
  throw core::usage_error(where + ": no " + what + "; " + how + " writes them");
}

std::optional<double> best(const RecordLines& records, const Target& target, const std::string& name,
                           const std::string& level, const std::string& dtype) {
  std::optional<double> most;
  for (const CeilingLine& line : records.ceilings) {
    if (line.device != target.device || line.threads != target.threads || line.name != name) continue;
    if ((!level.empty() && line.level != level) || (!dtype.empty() && line.dtype != dtype)) continue;
    most = std::max(most.value_or(0), line.value);
  }
  return most;
}

// If ranks share the cores of a host, a rank is the device, with the smallest number of threads for which kernels were
// timed from cold caches. No value if the records lack what Machine::measured needs.
std::optional<int> threads_of_a_rank(const RecordLines& records) {
  std::optional<int> fewest;
  for (const KernelLine& line : records.kernels) {
    if (line.device == "cpu" && line.cache == "cold") fewest = std::min(fewest.value_or(line.threads), line.threads);
  }
  return records.cores > 0 ? fewest : std::nullopt;
}

Target target_of(const RecordLines& records, const std::string& where) {
  if (records.ceilings.empty()) missing(where, "records of ceilings", "kernels_bench --json");
  Target target{"cpu", 1, "f32"};
  for (const CeilingLine& line : records.ceilings) {
    if (line.device == "cuda") target.device = "cuda";
  }
  for (const CeilingLine& line : records.ceilings) {
    if (line.device == target.device) target.threads = std::max(target.threads, line.threads);
  }
  if (target.device == "cpu") target.threads = threads_of_a_rank(records).value_or(target.threads);
  for (const char* dtype : {"f16", "bf16"}) {
    if (best(records, target, "gemm", "", dtype)) target.dtype = dtype;
  }
  return target;
}

bool is_product(const KernelLine& line) {
  return line.kernel.rfind("gemm", 0) == 0;
}
bool is_attention(const KernelLine& line) {
  return line.kernel.rfind("attention", 0) == 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// One point per factor of four of work: the median of the shares in that range.
EfficiencyCurve curve_of(const std::vector<EfficiencyPoint>& points) {
  std::map<int, std::vector<EfficiencyPoint>> bins;
  for (const EfficiencyPoint& point : points) {
    if (point.work <= 0) continue;  // a kernel that states no FLOPs or bytes
    bins[static_cast<int>(std::floor(std::log2(point.work) / 2))].push_back(point);
  }
  EfficiencyCurve curve;
  for (const auto& [bin, inside] : bins) {
    std::vector<double> work;
    std::vector<double> share;
    for (const EfficiencyPoint& point : inside) {
      work.push_back(std::log(point.work));
      share.push_back(point.share);
    }
    curve.push_back({std::exp(median(work)), std::min(1.0, median(share))});
  }
  return curve;
}

// Shares of `peak` (work per microsecond) that kernels reach from cold caches, as in a training step.
template <class Of, class Work>
EfficiencyCurve shares(const RecordLines& records, const Target& target, double peak_per_us, Of of, Work work) {
  std::vector<EfficiencyPoint> points;
  for (const KernelLine& line : records.kernels) {
    if (line.device != target.device || line.threads != target.threads || line.copies != 1 || line.cache != "cold" ||
        !of(line))
      continue;
    points.push_back({work(line), work(line) / line.median_us / peak_per_us});
  }
  const EfficiencyCurve curve = curve_of(points);
  return curve.empty() ? EfficiencyCurve{{1, 1}} : curve;
}

// A kernel may exceed the ceiling (a square product) if its operands fit into a cache.
double best_product_gflops(const RecordLines& records, const Target& target) {
  double most = 0;
  for (const KernelLine& line : records.kernels) {
    if (line.device != target.device || line.threads != target.threads || line.copies != 1 || line.cache != "cold")
      continue;
    if (is_product(line) && line.dtype == target.dtype) most = std::max(most, line.flops / line.median_us / 1e3);
  }
  return most;
}

DeviceSpec device_of(const RecordLines& records, const std::string& where) {
  const Target target = target_of(records, where);
  const auto peak = [&](const char* name, const char* level, const std::string& dtype) {
    const std::optional<double> value = best(records, target, name, level, dtype);
    if (!value || *value <= 0)
      missing(where, "record of the ceiling '" + std::string(name) + "'", "kernels_bench --json");
    return *value;
  };
  DeviceSpec device;
  device.name = records.machine + ", " + std::to_string(target.threads) + " threads, " + target.dtype;
  device.matrix_tflops = std::max(peak("gemm", "", target.dtype), best_product_gflops(records, target)) / 1e3;
  device.fp8_tflops = target.device == "cpu" ? 0 : best(records, target, "gemm", "", "e4m3").value_or(0) / 1e3;
  device.vector_tflops = peak("fma", "", "f32") / 1e3;
  device.memory_gbps = std::max({peak("copy", "memory", ""), peak("read", "memory", ""), peak("triad", "memory", "")});
  device.memory_bytes = std::max<std::int64_t>(1, records.memory_bytes);
  device.launch_us = peak("launch", "", "");
  const auto flops = [](const KernelLine& line) { return line.flops; };
  const auto bytes = [](const KernelLine& line) { return line.bytes; };
  const double matrix_per_us = device.matrix_tflops * 1e6;
  device.product = shares(
      records, target, matrix_per_us,
      [&](const KernelLine& line) { return is_product(line) && line.dtype == target.dtype; }, flops);
  device.attention = shares(
      records, target, matrix_per_us,
      [&](const KernelLine& line) { return is_attention(line) && line.dtype == target.dtype; }, flops);
  device.memory = shares(
      records, target, device.memory_gbps * 1e3,
      [](const KernelLine& line) { return line.bound == "memory" && !is_product(line) && !is_attention(line); }, bytes);
  return device;
}

// Rows with equal steps: every rank sends one message of the same size per step.
std::vector<RowLine> rows_to_fit(const RecordLines& records) {
  std::vector<RowLine> rows;
  for (const RowLine& row : records.rows) {
    if (row.algorithm == "ring" || row.collective == "send_recv") rows.push_back(row);
  }
  return rows;
}

// Kernels timed from cold caches with the target's threads.
void add_kernels(Measured& measured, const RecordLines& records, const Target& target) {
  measured.threads = target.threads;
  std::map<std::string, std::map<std::int32_t, std::vector<double>>> times;
  for (const KernelLine& line : records.kernels) {
    if (line.device != target.device || line.threads != target.threads || line.cache != "cold") continue;
    times[line.signature][line.copies].push_back(line.median_us);
  }
  for (const auto& [signature, of_copies] : times) {
    if (of_copies.begin()->first != 1) continue;
    for (const auto& [copies, all_us] : of_copies) {
      measured.kernels[signature].emplace_back(copies, median(all_us));
    }
  }
}

// The fastest measured algorithm at each size, as `--algo auto` chooses.
void add_collectives(Measured& measured, const RecordLines& records) {
  std::map<std::pair<std::string, int>, std::map<double, double>> fastest;
  for (const RowLine& row : records.rows) {
    if (row.bytes <= 0 || (!row.transport.empty() && row.transport != "local")) continue;
    double& us = fastest[{row.collective, row.ranks}].try_emplace(row.bytes, row.time_us).first->second;
    us = std::min(us, row.time_us);
  }
  for (const auto& [which, us_of_bytes] : fastest) {
    measured.collectives.push_back({which.first, which.second, {us_of_bytes.begin(), us_of_bytes.end()}});
  }
}

Measured measured_of(const RecordLines& records, const Target& target) {
  Measured measured;
  if (target.device != "cpu" || !threads_of_a_rank(records)) return measured;
  add_kernels(measured, records, target);
  if (measured.kernels.empty()) return measured;
  measured.cores = records.cores;
  add_collectives(measured, records);
  return measured;
}

}  // namespace

LinkFit fit_link(std::span<const RowLine> rows) {
  double ss = 0;
  double sb = 0;
  double bb = 0;
  double s = 0;
  double b = 0;
  for (const RowLine& row : rows) {
    const double steps = row.steps / row.time_us;
    const double bytes = row.wire_bytes / row.time_us;
    ss += steps * steps;
    sb += steps * bytes;
    bb += bytes * bytes;
    s += steps;
    b += bytes;
  }
  const double determinant = ss * bb - sb * sb;
  double alpha = determinant > 0 ? (s * bb - b * sb) / determinant : 0;
  double beta = determinant > 0 ? (b * ss - s * sb) / determinant : b / bb;
  if (alpha < 0) {
    alpha = 0;
    beta = b / bb;
  }
  LinkFit fit{alpha, 1e-3 / beta, 0};
  for (const RowLine& row : rows) {
    const double predicted = alpha * row.steps + beta * row.wire_bytes;
    fit.worst_error = std::max(fit.worst_error, std::abs(predicted / row.time_us - 1));
  }
  return fit;
}

Machine calibrate(const RecordLines& records, const std::string& where) {
  Machine machine;
  machine.name = "calibrated";
  machine.device = device_of(records, where);
  const std::vector<RowLine> rows = rows_to_fit(records);
  if (rows.size() < 2)
    missing(where, "two or more measured rows of ring or sendrecv", "all_reduce_perf --algo ring --json");
  const LinkFit fit = fit_link(rows);
  if (!std::isfinite(fit.gbps) || fit.gbps <= 0)
    missing(where, "rows of large messages", "all_reduce_perf -e 64M --json");
  NetworkLevel level;
  level.name = "shared memory";
  level.ranks = 1 << 20;
  level.gbps = fit.gbps;
  level.latency_us = fit.latency_us;
  machine.levels = {level};
  machine.host_gbps = machine.device.memory_gbps;
  machine.measured = measured_of(records, target_of(records, where));
  machine.sources = {"measured by Lockstep: " + where,
                     "device: the best samples of ceilings, and kernels from cold caches as shares of these ceilings",
                     "levels: latency a step and bandwidth fitted to " + std::to_string(rows.size()) +
                         " rows, at worst off by " +
                         std::to_string(static_cast<int>(std::lround(100 * fit.worst_error))) + " %"};
  return machine;
}

RecordFiles read_record_files(std::span<const std::string> paths) {
  std::string text;
  std::string where;
  for (const std::string& path : paths) {
    const std::string part = core::text_of_file(path, "records of kernels_bench and all_reduce_perf (--json)");
    read_record_lines(part, path);  // so that errors name their file and line
    text += part + "\n";
    where += (where.empty() ? "" : ", ") + path.substr(path.rfind('/') + 1);
  }
  return {read_record_lines(text, where), where};
}

}  // namespace lockstep::simulator
