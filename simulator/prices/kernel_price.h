// The time of a kernel on a device: the roofline, with the shares of the peaks that work of its size reaches, and the
// waves of tiles of products (product_time.h) where the device's number of multiprocessors is known.
#pragma once

#include <cstdint>

#include "simulator/machine/machine.h"
#include "workload/kernel_call.h"

namespace lockstep::simulator {

// One of the call's `count`: max(FLOPs / (peak x share), bytes / (bandwidth x share)) + launch, in picoseconds.
// Products and attention in f32 run at the device's f32 peak.
std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call);

// The same where it was not measured (Machine::measured), else the measured time while `copies` of it run at the same
// time, on straight lines between the numbers of copies that were measured.
std::int64_t kernel_ps(const Machine& machine, const workload::KernelCall& call, std::int32_t copies = 1);
// The least of these over all numbers of copies: by noise, copies may have been faster than one.
std::int64_t least_kernel_ps(const Machine& machine, const workload::KernelCall& call);
bool is_measured(const Machine& machine, const workload::KernelCall& call);

}  // namespace lockstep::simulator
