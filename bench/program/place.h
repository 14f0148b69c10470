// Devices and transport of a training program's ranks, and the energy of their steps: --device, --transport and
// --mpi-threads, the same in every program.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cuda.h"
#include "core/energy.h"
#include "core/record.h"
#include "core/wait.h"

namespace lockstep::program {

struct PlaceFlags {
  backends::DeviceChoice device;
  bool mpi = false;  // mpirun has started the ranks: --transport mpi, or nccl where mpirun has started the process
  transports::MpiThreads mpi_threads = transports::MpiThreads::multiple;  // requested from MPI
};

void declare_place(CommandLine& line, const char* group);
// Throws a usage Error for a value that does not exist or that conflicts with another.
PlaceFlags read_place(const CommandLine& line);
// Throws a usage Error if one of the flags is given: `allowed` names the combination that is possible.
void refuse_place(const CommandLine& line, const std::string& why, const std::string& allowed);
// Throws an Error with the reason if the device is not available.
void check_device(const backends::DeviceChoice& device);

// Calls body(world) and returns its exit status: once, with nullptr, or on each rank of mpirun, depending on the flags.
int run_in_place(const PlaceFlags& place, int argc, char** argv, std::chrono::milliseconds timeout,
                 const std::function<int(transports::MpiWorld*)>& body);
// True if this process prints and writes files: rank 0 of mpirun, or the only process.
bool writes_output(const transports::MpiWorld* mpi);
Print print_of(const transports::MpiWorld* mpi);

// GPUs that the ranks of this process's host use, of those that it sees: the chosen one for all, or all in rotation.
std::vector<core::CudaDeviceInfo> gpus_of(const backends::DeviceChoice& device, int ranks);
// GPUs that all ranks together run on.
int num_gpus(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks);
// "2 GPUs from cuda:0 on; each rank's collectives run in streams of their own, concurrently with its kernels".
std::string gpus_text(const backends::DeviceChoice& device, int ranks, const transports::MpiWorld* mpi = nullptr);
// True if the kernel threads of all ranks outnumber the cores, so that kernels share cores.
bool is_oversubscribed(const transports::MpiWorld* mpi, int ranks, int threads);
// "# OVERSUBSCRIBED: 4 ranks of 1 thread on 2 cores"; empty if they have a core each.
std::string oversubscribed_text(const transports::MpiWorld* mpi, int ranks, int threads);
// Adds the transport and its devices to a run's record.
void add_place(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks, core::RunRecord& run);

// Energy that training steps draw on the devices of their ranks.

// Opens a meter for the ranks' GPUs, or for this machine's CPUs; none for several hosts, as one rank reads it.
core::EnergyMeter open_energy(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks);

// Counts from begin_step(), or the end of the previous step, to end_step(). A first step without begin_step() loads and
// chooses kernels, and is not counted. One thread at a time. Counters update every few milliseconds, some GPUs' every
// 100 ms: short runs are inaccurate.
class StepEnergy {
 public:
  explicit StepEnergy(core::EnergyMeter opened) : opened_(std::move(opened)) {}

  void begin_step();
  void end_step(std::int64_t steps = 1);  // number of steps that end together
  void end_pause();  // after a validation, for example: energy since the last step belongs to no step
  std::optional<core::EnergyRecord> record(std::int64_t tokens_per_step) const;
  std::string text(std::int64_t tokens_per_step) const;  // one line

 private:
  struct Mark {
    double joules;
    core::Clock::time_point time;
  };
  std::optional<Mark> now();

  core::EnergyMeter opened_;
  std::optional<Mark> mark_;
  std::int64_t steps_ = 0;
  double joules_ = 0;
  double seconds_ = 0;
};

}  // namespace lockstep::program
