// The time of a kernel on a device: the roofline, with the shares of the peaks that work of its size reaches, and waves
// of tiles for matrix products (product_time.h) if the device's number of multiprocessors is known.
#pragma once

#include <cstdint>

#include "simulator/machine/machine.h"
#include "workload/kernel_call.h"

namespace lockstep::simulator {

// Time of one of the call's `count` kernels: max(FLOPs / (peak x share), bytes / (bandwidth x share)) + launch, in
// picoseconds. Products and attention in f32 run at the device's f32 peak.
std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call);

// The measured time (Machine::measured) while `copies` of the kernel run at the same time, interpolated linearly over
// the number of copies; if it was not measured, the time by formula.
std::int64_t kernel_ps(const Machine& machine, const workload::KernelCall& call, std::int32_t copies = 1);
// The least of these over all numbers of copies: by noise, several copies may have been faster than one.
std::int64_t least_kernel_ps(const Machine& machine, const workload::KernelCall& call);
bool is_measured(const Machine& machine, const workload::KernelCall& call);

}  // namespace lockstep::simulator
