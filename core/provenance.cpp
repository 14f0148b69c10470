#include "core/provenance.h"

#include <sys/utsname.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "core/options.h"
#include "core/random.h"
#include "core/ranks.h"

namespace lockstep::core {
namespace {

// Returns the first line of a small file of the kernel.
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty()) return std::nullopt;
  return line;
}

// Returns X of the first processor's line "<field> : X".
std::optional<std::string> cpuinfo(const std::string& field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(field) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return std::nullopt;
}

// Returns the size of the first core's data or unified cache of this level.
std::optional<std::int64_t> cache_bytes(const std::string& level) {
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const auto found = first_line(folder + "level");
    if (!found) return std::nullopt;
    if (*found == level && first_line(folder + "type") != "Instruction") {
      return parse_size(first_line(folder + "size").value_or(""));
    }
  }
}

std::optional<double> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const double value = std::strtod(text->c_str(), nullptr);
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> clock_mhz() {
  if (const auto khz = number(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))) return *khz / 1e3;
  return number(cpuinfo("cpu MHz"));
}

std::optional<std::int64_t> memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::nullopt;
  return std::int64_t{pages} * page_bytes;
}

std::string kernel() {
  utsname names{};
  uname(&names);  // it also holds the host's name, which is not used
  return fmt::format("{} {}", names.sysname, names.release);
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = mix64(text.size());
  for (char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Turns "/home/someone/out/r.jsonl" into "r.jsonl".
std::string without_folders(const std::string& path) {
  if (path.empty() || (path.front() != '/' && path.front() != '~')) return path;
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpuinfo("model name");
  machine.cores = usable_cores();
  machine.memory_bytes = memory_bytes();
  machine.kernel = kernel();
  machine.caches = {cache_bytes("1"), cache_bytes("2"), cache_bytes("3")};
  machine.mhz = clock_mhz();
  return machine;
}

std::string fingerprint(const Machine& machine) {
  const auto bytes = [](const std::optional<std::int64_t>& size) { return size.value_or(-1); };
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", machine.cpu.value_or(""), machine.cores, bytes(machine.memory_bytes),
                  machine.kernel.value_or(""), bytes(machine.caches.l1d_bytes), bytes(machine.caches.l2_bytes),
                  bytes(machine.caches.l3_bytes), machine.hosts);
  for (const std::string& gpu : machine.gpus) text += "|" + gpu;
  return hex(hash_of(text));
}

RunRecord new_run(const std::string& program, const std::vector<std::string>& command) {
  return {.run = new_run_id(),
          .program = program,
          .command = command,
          .started = utc_now(),
          .git = source(),
          .build = build(),
          .machine = this_machine(),
          .transport = "local",
          .rank_kind = "threads"};
}

std::vector<std::string> public_command(const std::vector<std::string>& command) {
  std::vector<std::string> shown;
  for (const std::string& word : command) {
    const std::size_t value = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (value == std::string::npos) {
      shown.push_back(without_folders(word));
    } else {
      shown.push_back(word.substr(0, value + 1) + without_folders(word.substr(value + 1)));
    }
  }
  return shown;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string new_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
  return hex(
      hash64(static_cast<std::uint64_t>(now), static_cast<std::uint64_t>(ticks), static_cast<std::uint64_t>(getpid())));
}

namespace {

GpuDeviceRecord device_record(const CudaDeviceInfo& gpu) {
  GpuDeviceRecord record{.pci_id = gpu.pci_id, .power_limit_watts = {}, .mig = {}, .mps = gpu.shared_by_mps};
  const OpenedMeter opened = open_gpu_meter(gpu.pci_id);
  if (!opened.meter) return record;
  record.power_limit_watts = opened.meter->power_limit_watts();
  record.mig = opened.meter->is_partitioned();
  return record;
}

// Clock limits that are reasons to run slower than the settings allow. The others are settings ("application clocks",
// "sync boost", "display clocks"), or "idle".
constexpr std::array<std::string_view, 5> kThrottles{"power cap", "hardware slowdown", "software thermal",
                                                     "hardware thermal", "power brake"};

bool is_limited_by(const GpuStateRecord& state, std::string_view limit) {
  return state.clock_limits &&
         std::find(state.clock_limits->begin(), state.clock_limits->end(), limit) != state.clock_limits->end();
}

std::string clock_change(std::string_view clock, std::optional<double> before, std::optional<double> after,
                         double most_change) {
  if (!before || !after || std::abs(*before - *after) <= most_change * std::max(*before, *after)) return "";
  return fmt::format("{} clock {:g} to {:g} MHz", clock, *before, *after);
}

std::string change_of(const GpuStateRecord& before, const GpuStateRecord& after, double most_change) {
  for (const std::string_view throttle : kThrottles) {
    if (is_limited_by(after, throttle) && !is_limited_by(before, throttle)) return std::string(throttle);
  }
  if (is_limited_by(before, "idle") || is_limited_by(after, "idle")) return "";
  const std::string change = clock_change("SM", before.sm_mhz, after.sm_mhz, most_change);
  return change.empty() ? clock_change("memory", before.memory_mhz, after.memory_mhz, most_change) : change;
}

}  // namespace

GpuRecord gpu_record(const std::vector<CudaDeviceInfo>& gpus, int ranks_per_gpu) {
  GpuRecord record;
  record.gpus = static_cast<int>(gpus.size());
  record.ranks_per_gpu = ranks_per_gpu;
  record.label = ranks_per_gpu > 1 ? "shared GPU" : "a GPU a rank";
  if (!gpus.empty() && gpus.front().clock_mhz > 0) record.clock_mhz = gpus.front().clock_mhz;
  for (const CudaDeviceInfo& gpu : gpus) record.devices.push_back(device_record(gpu));
  return record;
}

std::map<std::string, std::string> gpu_libraries(const std::vector<CudaDeviceInfo>& gpus) {
  std::map<std::string, std::string> libraries;
  const CudaVersions cuda = cuda_versions();
  if (!cuda.runtime.empty()) libraries["cuda"] = cuda.runtime;
  if (!cuda.driver.empty()) libraries["cuda_driver"] = cuda.driver;
  if (gpus.empty()) return libraries;
  const OpenedMeter opened = open_gpu_meter(gpus.front().pci_id);
  if (!opened.meter) return libraries;
  if (const auto version = opened.meter->driver_version()) libraries["nvidia_driver"] = *version;
  return libraries;
}

GpuStateRecord state_of(const std::string& pci_id, const GpuMeter& gpu) {
  return {.pci_id = pci_id,
          .sm_mhz = gpu.multiprocessor_clock_mhz(),
          .memory_mhz = gpu.memory_clock_mhz(),
          .temperature_c = gpu.temperature_c(),
          .power_watts = gpu.power_watts(),
          .clock_limits = gpu.clock_limits()};
}

GpuWatch::GpuWatch(const std::vector<CudaDeviceInfo>& gpus) {
  for (const CudaDeviceInfo& gpu : gpus) {
    OpenedMeter opened = open_gpu_meter(gpu.pci_id);
    if (opened.meter) watched_.push_back({gpu.pci_id, std::move(opened.meter)});
  }
}

std::vector<GpuStateRecord> GpuWatch::now() const {
  std::vector<GpuStateRecord> states;
  for (const Watched& device : watched_) states.push_back(state_of(device.pci_id, *device.meter));
  return states;
}

std::optional<std::string> clock_disturbance(std::span<const GpuStateRecord> before,
                                             std::span<const GpuStateRecord> after, double most_change) {
  for (std::size_t g = 0; g < std::min(before.size(), after.size()); ++g) {
    const std::string change = change_of(before[g], after[g], most_change);
    if (!change.empty()) return after[g].pci_id + ": " + change;
  }
  return std::nullopt;
}

SteadyClocks::Look watch_of(const std::vector<CudaDeviceInfo>& gpus) {
  const auto watch = std::make_shared<GpuWatch>(gpus);
  if (!watch->sees()) return {};
  return [watch] { return watch->now(); };
}

void SteadyClocks::begin() {
  if (look_) before_ = look_();
}

bool SteadyClocks::again() {
  if (!look_) return false;
  after_ = look_();
  disturbance_ = clock_disturbance(before_, after_, bounds_.most_change);
  if (!disturbance_ || repeats_ >= bounds_.most_repeats) return false;
  ++repeats_;
  return true;
}

std::optional<GpuClocksRecord> SteadyClocks::record() const {
  if (before_.empty()) return std::nullopt;
  return GpuClocksRecord{.before = before_,
                         .repeats = repeats_,
                         .most_repeats = bounds_.most_repeats,
                         .most_change = bounds_.most_change,
                         .disturbance = disturbance_};
}

}  // namespace lockstep::core
