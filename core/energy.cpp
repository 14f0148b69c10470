// Names, results and units: NVML API Reference Guide (nvml.h).
#include "core/energy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::core {
namespace {

constexpr int kMultiprocessorClock = 1;  // NVML_CLOCK_SM
constexpr int kMemoryClock = 2;          // NVML_CLOCK_MEM
constexpr int kGpuSensor = 0;            // NVML_TEMPERATURE_GPU

struct ClockLimit {
  unsigned long long bit;  // nvmlClocksThrottleReason...
  const char* name;
};
constexpr std::array kClockLimits{ClockLimit{0x1, "idle"},
                                  ClockLimit{0x2, "application clocks"},
                                  ClockLimit{0x4, "power cap"},
                                  ClockLimit{0x8, "hardware slowdown"},
                                  ClockLimit{0x10, "sync boost"},
                                  ClockLimit{0x20, "software thermal"},
                                  ClockLimit{0x40, "hardware thermal"},
                                  ClockLimit{0x80, "power brake"},
                                  ClockLimit{0x100, "display clocks"}};

template <class Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

template <class Function>
void need(void* library, const char* name, Function*& function) {
  look_up(library, name, function);
  if (function == nullptr) throw Error(Failure::cuda, fmt::format("NVML has no {}", name));
}

NvmlCalls calls_of(void* library) {
  NvmlCalls calls{};
  need(library, "nvmlInit_v2", calls.init);
  need(library, "nvmlShutdown", calls.shutdown);
  need(library, "nvmlErrorString", calls.error_string);
  need(library, "nvmlDeviceGetHandleByPciBusId_v2", calls.device_by_pci_id);
  look_up(library, "nvmlDeviceGetTotalEnergyConsumption", calls.total_energy);
  look_up(library, "nvmlDeviceGetPowerUsage", calls.power);
  look_up(library, "nvmlDeviceGetClockInfo", calls.clock);
  look_up(library, "nvmlDeviceGetTemperature", calls.temperature);
  look_up(library, "nvmlDeviceGetCurrentClocksThrottleReasons", calls.throttle_reasons);
  look_up(library, "nvmlDeviceGetEnforcedPowerLimit", calls.power_limit);
  look_up(library, "nvmlDeviceGetMigMode", calls.mig_mode);
  look_up(library, "nvmlSystemGetDriverVersion", calls.driver_version);
  return calls;
}

// Returns the answer that NVML writes to its last argument; nullopt if it lacks the call or has no answer.
template <class Answer, class Function, class... Arguments>
std::optional<Answer> answer(Function* function, Arguments... arguments) {
  Answer value{};
  if (function == nullptr || function(arguments..., &value) != 0) return std::nullopt;
  return value;
}

std::optional<double> watts(std::optional<unsigned int> milliwatts) {
  if (!milliwatts) return std::nullopt;
  return 1e-3 * *milliwatts;
}

std::optional<double> as_double(std::optional<unsigned int> value) {
  if (!value) return std::nullopt;
  return *value;
}

void check(const NvmlCalls& calls, int result, const char* call, const std::string& pci_id) {
  if (result == 0) return;
  throw Error(Failure::cuda, fmt::format("{} failed for the GPU at {}: {}", call, pci_id, calls.error_string(result)));
}

}  // namespace

GpuMeter::GpuMeter(NvmlCalls calls, std::shared_ptr<void> library, const std::string& pci_id)
    : library_(std::move(library)), calls_(calls) {
  check(calls_, calls_.init(), "nvmlInit", pci_id);
  const int result = calls_.device_by_pci_id(pci_id.c_str(), &device_);
  if (result != 0) calls_.shutdown();
  check(calls_, result, "nvmlDeviceGetHandleByPciBusId", pci_id);
  start_joules_ = energy_since_driver_joules();
}

GpuMeter::~GpuMeter() {
  calls_.shutdown();  // NVML counts openings: other meters are not affected
}

std::optional<double> GpuMeter::energy_since_driver_joules() const {
  const auto millijoules = answer<unsigned long long>(calls_.total_energy, device_);
  if (!millijoules) return std::nullopt;
  return 1e-3 * static_cast<double>(*millijoules);
}

std::optional<double> GpuMeter::energy_joules() const {
  const auto now = energy_since_driver_joules();
  if (!now || !start_joules_) return std::nullopt;
  return *now - *start_joules_;
}

std::optional<double> GpuMeter::power_watts() const {
  return watts(answer<unsigned int>(calls_.power, device_));
}

std::optional<double> GpuMeter::power_limit_watts() const {
  return watts(answer<unsigned int>(calls_.power_limit, device_));
}

std::optional<double> GpuMeter::multiprocessor_clock_mhz() const {
  return as_double(answer<unsigned int>(calls_.clock, device_, kMultiprocessorClock));
}

std::optional<double> GpuMeter::memory_clock_mhz() const {
  return as_double(answer<unsigned int>(calls_.clock, device_, kMemoryClock));
}

std::optional<double> GpuMeter::temperature_c() const {
  return as_double(answer<unsigned int>(calls_.temperature, device_, kGpuSensor));
}

std::optional<std::vector<std::string>> GpuMeter::clock_limits() const {
  const auto bits = answer<unsigned long long>(calls_.throttle_reasons, device_);
  if (!bits) return std::nullopt;
  std::vector<std::string> names;
  for (const ClockLimit& limit : kClockLimits) {
    if ((*bits & limit.bit) != 0) names.emplace_back(limit.name);
  }
  return names;
}

std::optional<bool> GpuMeter::is_partitioned() const {
  unsigned int present = 0;
  const auto pending = answer<unsigned int>(calls_.mig_mode, device_, &present);
  if (!pending) return std::nullopt;
  return present != 0;
}

std::optional<std::string> GpuMeter::driver_version() const {
  std::array<char, 80> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  if (calls_.driver_version == nullptr) return std::nullopt;
  if (calls_.driver_version(text.data(), static_cast<unsigned int>(text.size())) != 0) return std::nullopt;
  return text.data();
}

OpenedMeter open_gpu_meter(const std::string& pci_id, const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, fmt::format("no NVML: {}", dlerror())};
  const std::shared_ptr<void> opened(handle, [](void* its) { dlclose(its); });
  try {
    return {std::make_unique<GpuMeter>(calls_of(handle), opened, pci_id), ""};
  } catch (const Error& error) {
    return {nullptr, fmt::format("no NVML: {}", error.what())};
  }
}

// Names, units and wrapping of RAPL's counters: Linux, Documentation/power/powercap/powercap.rst.
namespace {

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

struct Package {
  std::filesystem::path counter;
  std::int64_t range_uj;  // largest value of the counter
  std::int64_t last_uj;
};

// True for "intel-rapl:0", but not for "intel-rapl:0:1", which is a subdomain; "psys" includes the packages and is
// skipped.
bool is_package(const std::filesystem::path& zone) {
  const std::string name = zone.filename().string();
  if (!name.starts_with("intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) return false;
  std::ifstream file(zone / "name");
  std::string its;
  return std::getline(file, its) && its.starts_with("package");
}

EnergyMeter no_meter(std::string why) {
  return {.why_absent = std::move(why)};
}

}  // namespace

EnergyMeter add_up_gpus(std::vector<std::unique_ptr<GpuMeter>> gpus) {
  const auto count = static_cast<int>(gpus.size());
  const auto shared = std::make_shared<const std::vector<std::unique_ptr<GpuMeter>>>(std::move(gpus));
  const auto joules = [shared]() -> std::optional<double> {
    double sum = 0;
    for (const auto& gpu : *shared) {
      const auto of_gpu = gpu->energy_joules();
      if (!of_gpu) return std::nullopt;
      sum += *of_gpu;
    }
    return sum;
  };
  if (!joules()) return no_meter("no energy: this GPU does not report energy to NVML (Volta and later do)");
  return {joules, "nvml", count};
}

EnergyMeter open_gpu_energy(const std::vector<std::string>& pci_ids, const std::string& library) {
  std::vector<std::string> distinct = pci_ids;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.empty()) return no_meter("no energy: there is no GPU");
  std::vector<std::unique_ptr<GpuMeter>> gpus;
  for (const std::string& pci_id : distinct) {
    OpenedMeter opened = open_gpu_meter(pci_id, library);
    if (!opened.meter) return no_meter("no energy: " + opened.why_absent);
    gpus.push_back(std::move(opened.meter));
  }
  return add_up_gpus(std::move(gpus));
}

EnergyMeter open_cpu_energy(const std::string& folder) {
  std::vector<Package> packages;
  std::error_code none;
  for (const auto& zone : std::filesystem::directory_iterator(folder, none)) {
    if (!is_package(zone.path())) continue;
    const std::filesystem::path counter = zone.path() / "energy_uj";
    errno = 0;
    const auto now_uj = number_in(counter);
    const auto range_uj = number_in(zone.path() / "max_energy_range_uj");
    if (!now_uj || !range_uj) {
      return no_meter(fmt::format("no energy: RAPL's {} cannot be read{}{}", counter.string(), errno == 0 ? "" : ": ",
                                  errno == 0 ? "" : std::strerror(errno)));
    }
    packages.push_back({counter, *range_uj, *now_uj});
  }
  if (packages.empty()) return no_meter(fmt::format("no energy: {} has no RAPL package", folder));
  const auto count = static_cast<int>(packages.size());
  return {[packages, sum_uj = std::int64_t{0}]() mutable -> std::optional<double> {
            for (Package& package : packages) {
              const auto now_uj = number_in(package.counter);
              if (!now_uj) return std::nullopt;
              sum_uj += *now_uj - package.last_uj + (*now_uj < package.last_uj ? package.range_uj : 0);
              package.last_uj = *now_uj;
            }
            return 1e-6 * static_cast<double>(sum_uj);
          },
          "rapl", count};
}

}  // namespace lockstep::core
