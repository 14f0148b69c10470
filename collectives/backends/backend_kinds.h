// Functions of each backend: the rows of backend.cpp's table. See backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

void run_local(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

std::optional<std::string> mpi_absence();
void run_mpi(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

std::optional<std::string> cuda_absence();
std::unique_ptr<GpuMember> join_cuda(transports::World& world, RankGpu& gpu, const BackendOptions& options);

std::optional<std::string> nccl_absence();
std::unique_ptr<GpuMember> join_nccl(transports::World& world, RankGpu& gpu, const BackendOptions& options);

}  // namespace lockstep::backends
