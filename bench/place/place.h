// Devices and transport of a training program's ranks: --device, --transport and --mpi-threads, the same in every
// program.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cuda.h"
#include "core/record.h"

namespace lockstep::program {

struct PlaceFlags {
  backends::DeviceChoice device;
  bool mpi = false;  // ranks are those of mpirun: --transport mpi, or nccl where mpirun has started the process
  transports::MpiThreads mpi_threads = transports::MpiThreads::multiple;  // requested from MPI
};

void declare_place(CommandLine& line, const char* group);
// Throws a usage Error for a value that does not exist or that conflicts with another.
PlaceFlags read_place(const CommandLine& line);
// Throws a usage Error if one of the flags is given: `allowed` names the combination that is possible.
void refuse_place(const CommandLine& line, const std::string& why, const std::string& allowed);
// Throws an Error that says why the device is not available.
void check_device(const backends::DeviceChoice& device);

// Calls body(world) and returns its exit status: once, with nullptr, or on each rank of mpirun, as the flags say.
int run_in_place(const PlaceFlags& place, int argc, char** argv, std::chrono::milliseconds timeout,
                 const std::function<int(transports::MpiWorld*)>& body);
// True if this process prints and writes files: rank 0 of mpirun, or the only process.
bool tells(const transports::MpiWorld* mpi);
Print print_of(const transports::MpiWorld* mpi);

// GPUs that the ranks of this process's host use, of those that it sees: the chosen one for all, or all in rotation.
std::vector<core::CudaDeviceInfo> gpus_of(const backends::DeviceChoice& device, int ranks);
// GPUs that all ranks together run on.
int num_gpus(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks);
// "2 GPUs from cuda:0 on; each rank's collectives run in streams beside its kernels".
std::string gpus_text(const backends::DeviceChoice& device, int ranks, const transports::MpiWorld* mpi = nullptr);
// Adds the transport and its devices to a run's record.
void add_place(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks, core::RunRecord& run);

}  // namespace lockstep::program
