#include "bench/program/place.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "collectives/backends/backend.h"
#include "collectives/libraries/nccl_library.h"
#include "core/provenance.h"
#include "core/ranks.h"

namespace lockstep::program {
namespace {

using Flag = FlagOf<PlaceFlags>;

// --transport nccl, not --device, selects NCCL's collectives.
backends::DeviceChoice device_of(const FlagValue& value) {
  constexpr std::string_view kOneGpu = "cuda:";
  if (value.text == "cpu") return {};
  if (value.text == "cuda") return {.cuda = true};
  int index = -1;
  if (value.text.starts_with(kOneGpu)) {
    index = core::parse_number<int>(value.text.substr(kOneGpu.size())).value_or(-1);
  }
  if (index < 0) throw value.refused("not a device", "cpu cuda cuda:0 cuda:1 ...");
  return {.cuda = true, .index = index};
}

void read_transport(PlaceFlags& place, const FlagValue& value) {
  value.one_of(std::array{"local", "mpi", "nccl"});
  place.mpi = value.text == "mpi" || (value.text == "nccl" && core::started_by_mpi());
  place.device.nccl = value.text == "nccl";
}

transports::MpiThreads mpi_threads_of(const FlagValue& value) {
  return value.index_of(std::array{"multiple", "funneled"}) == 0 ? transports::MpiThreads::multiple
                                                                 : transports::MpiThreads::funneled;
}

const std::array kFlags{
    Flag{"--device", "cpu",
         "cpu; cuda: rank r runs on GPU r modulo the number of GPUs, so that ranks may share one; cuda:1: all ranks "
         "share GPU 1",
         [](PlaceFlags& p, const FlagValue& v) { p.device = device_of(v); }},
    Flag{"--transport", "local",
         "local: ranks are threads; mpi: ranks of mpirun; nccl: with --device cuda and NCCL's collectives, ranks of "
         "mpirun where it has started the program, else threads",
         read_transport},
    Flag{"--mpi-threads", "multiple",
         "multiple: communication runs concurrently with kernels, if this MPI can; funneled: in the rank's own thread, "
         "serially",
         [](PlaceFlags& p, const FlagValue& v) { p.mpi_threads = mpi_threads_of(v); }},
};

void check_nccl(const backends::DeviceChoice& device) {
  if (!device.nccl) return;
  if (!device.cuda) {
    throw core::usage_error(
        "--transport nccl together with --device cpu; allowed: --device cuda, or --transport local");
  }
  if (const auto why = backends::find_backend("nccl").absence()) {
    throw core::Error(core::Failure::not_built, "--transport nccl: " + *why);
  }
}

void add_mpi(const transports::MpiWorld& mpi, core::RunRecord& run) {
  run.rank_kind = "mpi";
  run.libraries["mpi"] = mpi.library_version() + " (" + std::string(name_of(mpi.threads())) + ")";
  run.machine.hosts = mpi.placement().num_hosts;
  run.oversubscribed = mpi.placement().oversubscribed;
}

// Ranks of mpirun that run on this process's host; on the one with most, if hosts differ.
int ranks_here(const transports::MpiWorld* mpi, int ranks) {
  return mpi == nullptr ? ranks : std::min(ranks, mpi->placement().most_ranks_of_a_host);
}

// Returns the most of `ranks` that share one of the `gpus` GPUs that this process sees. A process of mpirun may see
// other GPUs than its neighbours, which resource managers give it; but NCCL lets ranks share a GPU only where that is
// requested.
int most_on_a_gpu(const transports::MpiWorld* mpi, int ranks, int gpus) {
  if (gpus == 0 || (mpi != nullptr && libraries::why_no_shared_gpu())) return 1;
  return (ranks + gpus - 1) / gpus;
}

void add_gpus(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks, core::RunRecord& run) {
  const int here = ranks_here(mpi, ranks);
  const std::vector<core::CudaDeviceInfo> gpus = gpus_of(device, here);
  for (const core::CudaDeviceInfo& gpu : gpus) run.machine.gpus.push_back(gpu.name);
  run.gpu = core::gpu_record(gpus, most_on_a_gpu(mpi, here, static_cast<int>(gpus.size())));
  run.libraries.merge(core::gpu_libraries(gpus));
}

}  // namespace

void declare_place(CommandLine& line, const char* group) {
  declare_all(line, kFlags, group);
}

PlaceFlags read_place(const CommandLine& line) {
  PlaceFlags place;
  read_all(line, kFlags, place);
  if (!place.mpi && line.value("--mpi-threads")) {
    throw core::usage_error("--mpi-threads requires --transport mpi");
  }
  if (place.mpi && place.device.cuda && !place.device.nccl) {
    throw core::usage_error("--device cuda together with --transport mpi; allowed: --transport local or nccl");
  }
  check_nccl(place.device);
  return place;
}

void refuse_place(const CommandLine& line, const std::string& why, const std::string& allowed) {
  for (const Flag& flag : kFlags) {
    if (line.value(flag.names)) throw core::usage_error(fmt::format("{}{}; allowed: {}", flag.names, why, allowed));
  }
}

void check_device(const backends::DeviceChoice& device) {
  if (!device.cuda) return;
  if (const auto why = core::why_no_cuda()) throw core::Error(core::Failure::not_built, "--device cuda: " + *why);
}

int run_in_place(const PlaceFlags& place, int argc, char** argv, std::chrono::milliseconds timeout,
                 const std::function<int(transports::MpiWorld*)>& body) {
  if (!place.mpi) {
    refuse_peers("--transport local", "--transport mpi, or no mpirun");
    return body(nullptr);
  }
  return transports::run_mpi_program(
      argc, argv, core::source().revision, timeout, [&](transports::MpiWorld& mpi) { return body(&mpi); },
      place.mpi_threads);
}

bool writes_output(const transports::MpiWorld* mpi) {
  return mpi == nullptr || mpi->placement().rank == 0;
}

Print print_of(const transports::MpiWorld* mpi) {
  return writes_output(mpi) ? Print(to_stdout) : [](const std::string&) {};
}

std::vector<core::CudaDeviceInfo> gpus_of(const backends::DeviceChoice& device, int ranks) {
  std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  if (device.index >= static_cast<int>(gpus.size())) return {};
  if (device.index >= 0) return {gpus[static_cast<std::size_t>(device.index)]};
  gpus.resize(std::min(gpus.size(), static_cast<std::size_t>(ranks)));
  return gpus;
}

int num_gpus(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks) {
  const int here = ranks_here(mpi, ranks);
  const auto gpus = static_cast<int>(gpus_of(device, here).size());
  if (mpi == nullptr) return gpus;
  const int most = most_on_a_gpu(mpi, here, gpus);
  return (ranks + most - 1) / most;
}

std::string gpus_text(const backends::DeviceChoice& device, int ranks, const transports::MpiWorld* mpi) {
  const std::size_t gpus = gpus_of(device, ranks_here(mpi, ranks)).size();
  std::string where;
  if (mpi != nullptr) {
    const transports::MpiPlacement& placement = mpi->placement();
    where = fmt::format(", as rank 0 sees them; {} processes of mpirun on {} host{}", placement.num_ranks,
                        placement.num_hosts, placement.num_hosts == 1 ? "" : "s");
  }
  return fmt::format(
      "{} GPU{} from cuda:{} on{}; each rank's collectives run in streams of their own, concurrently with its kernels",
      gpus, gpus == 1 ? "" : "s", std::max(device.index, 0), where);
}

bool is_oversubscribed(const transports::MpiWorld* mpi, int ranks, int threads) {
  if (mpi == nullptr) return ranks * threads > core::usable_cores();
  return mpi->placement().oversubscribed || threads > mpi->placement().cores_per_rank;
}

std::string oversubscribed_text(const transports::MpiWorld* mpi, int ranks, int threads) {
  if (!is_oversubscribed(mpi, ranks, threads)) return "";
  const int cores = mpi == nullptr ? core::usable_cores() : mpi->placement().cores_per_rank;
  return fmt::format("# OVERSUBSCRIBED: {} rank{} of {} thread{} on {} core{}{}: kernels share cores\n", ranks,
                     ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s",
                     mpi == nullptr ? "" : " per rank");
}

void add_place(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks, core::RunRecord& run) {
  run.transport = device.nccl ? "nccl" : device.cuda ? "cuda" : mpi != nullptr ? "mpi" : "local";
  if (device.cuda) add_gpus(device, mpi, ranks, run);
  if (device.nccl) run.libraries["nccl"] = libraries::nccl_version();
  if (mpi != nullptr) add_mpi(*mpi, run);
}

core::EnergyMeter open_energy(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks) {
  if (mpi != nullptr && mpi->placement().num_hosts > 1) return {.why_absent = "no energy: ranks are on several hosts"};
  if (!device.cuda) return core::open_cpu_energy();
  std::vector<std::string> pci_ids;
  for (const core::CudaDeviceInfo& gpu : gpus_of(device, ranks)) {
    pci_ids.push_back(gpu.pci_id);
  }
  return core::open_gpu_energy(pci_ids);
}

std::optional<StepEnergy::Mark> StepEnergy::now() {
  if (!opened_.joules) return std::nullopt;
  const auto joules = opened_.joules();
  if (!joules) {
    opened_ = {.why_absent = "no energy: a counter could not be read while the run went on"};
    return std::nullopt;
  }
  return Mark{*joules, core::Clock::now()};
}

void StepEnergy::begin_step() {
  mark_ = now();
}

void StepEnergy::end_step(std::int64_t steps) {
  const auto before = mark_;
  mark_ = now();
  if (!before || !mark_) return;
  steps_ += steps;
  joules_ += mark_->joules - before->joules;
  seconds_ += core::us_between(before->time, mark_->time) * 1e-6;
}

void StepEnergy::end_pause() {
  if (mark_) mark_ = now();
}

std::optional<core::EnergyRecord> StepEnergy::record(std::int64_t tokens_per_step) const {
  if (!opened_.joules || joules_ <= 0 || seconds_ <= 0) return std::nullopt;
  const auto steps = static_cast<double>(steps_);
  return core::EnergyRecord{.source = opened_.source,
                            .devices = opened_.devices,
                            .steps = steps_,
                            .seconds = seconds_,
                            .joules_per_step = joules_ / steps,
                            .watts = joules_ / seconds_,
                            .tokens_per_joule = static_cast<double>(tokens_per_step) * steps / joules_};
}

std::string StepEnergy::text(std::int64_t tokens_per_step) const {
  const auto energy = record(tokens_per_step);
  if (!energy)
    return fmt::format("# {}\n", opened_.joules ? "no energy: the run was too short to count" : opened_.why_absent);
  return fmt::format("# energy: {:.4g} J per step, {:.4g} W, {:.4g} tokens per joule; {} {}{} by {}, {} steps\n",
                     energy->joules_per_step, energy->watts, energy->tokens_per_joule, energy->devices,
                     energy->source == "nvml" ? "GPU" : "CPU package", energy->devices == 1 ? "" : "s",
                     energy->source == "nvml" ? "NVML" : "RAPL", energy->steps);
}

}  // namespace lockstep::program
