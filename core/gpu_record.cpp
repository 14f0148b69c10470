#include "core/gpu_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace lockstep::core {
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

bool says(const GpuStateRecord& state, std::string_view limit) {
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
    if (says(after, throttle) && !says(before, throttle)) return std::string(throttle);
  }
  if (says(before, "idle") || says(after, "idle")) return "";
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
  for (const Watched& one : watched_) states.push_back(state_of(one.pci_id, *one.meter));
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
