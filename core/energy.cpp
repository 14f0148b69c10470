// Names, units and wrapping of RAPL's counters: Linux, Documentation/power/powercap/powercap.rst.
#include "core/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace lockstep::core {
namespace {

class GpuEnergy final : public EnergyMeter {
 public:
  explicit GpuEnergy(std::vector<std::unique_ptr<GpuMeter>> gpus) : gpus_(std::move(gpus)) {}

  std::optional<double> joules() override {
    double sum = 0;
    for (const auto& gpu : gpus_) {
      const auto joules = gpu->energy_joules();
      if (!joules) return std::nullopt;
      sum += *joules;
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<GpuMeter>> gpus_;
};

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

class CpuEnergy final : public EnergyMeter {
 public:
  struct Package {
    std::filesystem::path counter;
    std::int64_t range_uj;  // largest value of the counter
    std::int64_t last_uj;
  };
  explicit CpuEnergy(std::vector<Package> packages) : packages_(std::move(packages)) {}

  std::optional<double> joules() override {
    for (Package& package : packages_) {
      const auto now_uj = number_in(package.counter);
      if (!now_uj) return std::nullopt;
      sum_uj_ += *now_uj - package.last_uj + (*now_uj < package.last_uj ? package.range_uj : 0);
      package.last_uj = *now_uj;
    }
    return 1e-6 * static_cast<double>(sum_uj_);
  }

 private:
  std::vector<Package> packages_;
  std::int64_t sum_uj_ = 0;
};

// True for "intel-rapl:0", but not for "intel-rapl:0:1", which is a part of it; "psys" includes the packages and is
// skipped.
bool is_package(const std::filesystem::path& zone) {
  const std::string name = zone.filename().string();
  if (!name.starts_with("intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) return false;
  std::ifstream file(zone / "name");
  std::string its;
  return std::getline(file, its) && its.starts_with("package");
}

OpenedEnergyMeter no_meter(std::string why) {
  return {nullptr, "", 0, std::move(why)};
}

}  // namespace

OpenedEnergyMeter add_up_gpus(std::vector<std::unique_ptr<GpuMeter>> gpus) {
  const auto count = static_cast<int>(gpus.size());
  auto meter = std::make_unique<GpuEnergy>(std::move(gpus));
  if (!meter->joules()) return no_meter("no energy: this GPU does not report energy to NVML (Volta and later do)");
  return {std::move(meter), "nvml", count, ""};
}

OpenedEnergyMeter open_gpu_energy(const std::vector<std::string>& pci_ids, const std::string& library) {
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

OpenedEnergyMeter open_cpu_energy(const std::string& folder) {
  std::vector<CpuEnergy::Package> packages;
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
  return {std::make_unique<CpuEnergy>(std::move(packages)), "rapl", count, ""};
}

}  // namespace lockstep::core
