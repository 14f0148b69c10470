#include "bench/collective_perf/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "collectives/backends/places.h"
#include "core/error.h"
#include "core/options.h"
#include "core/provenance.h"

namespace lockstep::sweep {
namespace {

// Process, host and device of a rank, as they are sent to the other ranks. Texts end in a zero and are cut if they are
// too long.
struct RankSite {
  int process_id;
  int device;
  bool has_mps;
  std::array<char, 64> host = {};
  std::array<char, 32> bus_id = {};
  std::array<char, 128> name = {};
};

template <std::size_t kSize>
void put(std::array<char, kSize>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

// Drops the function of a PCI address, as nccl-tests does: "0000:1b:00.0" becomes "0000:1b:00".
std::string without_function(const std::string& pci_id) {
  return pci_id.substr(0, pci_id.rfind('.'));
}

RankSite site_of_gpu(const core::Device& device, const backends::Backend& backend) {
  const std::vector<core::CudaDeviceInfo> gpus = backend.gpus();
  const core::CudaDeviceInfo& gpu = gpus.at(static_cast<std::size_t>(device.index()));
  RankSite site{getpid(), device.index(), gpu.shared_by_mps.value_or(false)};
  put(site.bus_id, without_function(gpu.pci_id));
  put(site.name, device.name());
  return site;
}

RankSite site_of_core(int rank) {
  const core::Machine machine = core::this_machine();
  RankSite site{getpid(), rank % static_cast<int>(machine.cores), false};
  put(site.bus_id, "cpu");
  put(site.name, machine.cpu.value_or("cpu"));
  return site;
}

// Ranks on each GPU.
std::map<std::pair<std::string, int>, std::vector<int>> ranks_of_gpus(const std::vector<DeviceLine>& places) {
  std::map<std::pair<std::string, int>, std::vector<int>> ranks;
  for (const DeviceLine& place : places) ranks[{place.host, place.device}].push_back(place.rank);
  return ranks;
}

}  // namespace

std::vector<DeviceLine> places_of_ranks(backends::Endpoint& endpoint, const backends::Backend& backend) {
  RankSite mine = backend.on_gpus() ? site_of_gpu(endpoint.device, backend) : site_of_core(endpoint.world.rank());
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<DeviceLine> places;
  for (const RankSite& site : transports::all_gather_value(endpoint.world, mine)) {
    places.push_back({static_cast<int>(places.size()), site.process_id, site.host.data(), site.device,
                      site.bus_id.data(), site.name.data(), site.has_mps});
  }
  return places;
}

int ranks_per_gpu(const std::vector<DeviceLine>& places) {
  std::size_t most = 0;
  for (const auto& [gpu, ranks] : ranks_of_gpus(places)) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

std::string ranges_text(const std::vector<int>& ascending) {
  std::string text;
  for (std::size_t first = 0; first < ascending.size();) {
    std::size_t last = first;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text +=
        last == first ? fmt::format("{}", ascending[first]) : fmt::format("{}-{}", ascending[first], ascending[last]);
    first = last + 1;
  }
  return text;
}

namespace {

// Contexts of several processes time-share a GPU unless they run under MPS (NVIDIA, Multi-Process Service).
bool processes_take_turns(const std::vector<DeviceLine>& places, const std::vector<int>& ranks) {
  std::set<int> processes;
  bool mps = true;
  for (const int rank : ranks) {
    const DeviceLine& place = places.at(static_cast<std::size_t>(rank));
    processes.insert(place.process_id);
    mps = mps && place.has_mps;
  }
  return processes.size() > 1 && !mps;
}

}  // namespace

std::vector<std::string> sharing_notes(const std::vector<DeviceLine>& places) {
  std::vector<std::string> notes;
  for (const auto& [gpu, ranks] : ranks_of_gpus(places)) {
    if (ranks.size() < 2) continue;
    const DeviceLine& place = places.at(static_cast<std::size_t>(ranks.front()));
    notes.push_back(fmt::format("ranks {} on device {} {} ({} ranks share it)", ranges_text(ranks), place.device,
                                place.name, ranks.size()));
    if (!processes_take_turns(places, ranks)) continue;
    notes.push_back(
        fmt::format("processes time-share device {} and wait for each other's time slices: MPS "
                    "(nvidia-cuda-mps-control -d) lets them run at the same time",
                    place.device));
  }
  return notes;
}

void check_gpu_memory(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_of_host, std::size_t bytes_per_rank,
                      std::int64_t max_bytes) {
  const auto num_gpus = static_cast<int>(gpus.size());
  for (int gpu = 0; gpu < std::min(num_gpus, ranks_of_host); ++gpu) {
    const int ranks = backends::assigned_gpu(gpu, ranks_of_host, num_gpus).ranks_on_it;
    const std::size_t needed = bytes_per_rank * static_cast<std::size_t>(ranks);
    const core::CudaDeviceInfo& info = gpus[static_cast<std::size_t>(gpu)];
    if (needed <= info.memory_bytes / 10 * 9) continue;
    throw core::usage_error(fmt::format("-e,--maxbytes {}: {} ranks need {} of memory on device {} {}; it has {}",
                                        core::format_size(max_bytes), ranks,
                                        core::format_size(static_cast<std::int64_t>(needed)), gpu, info.name,
                                        core::format_size(static_cast<std::int64_t>(info.memory_bytes))));
  }
}

}  // namespace lockstep::sweep
