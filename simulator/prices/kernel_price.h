// What a kernel takes on a device: the roofline, with the shares of the peaks that work of its size reaches.
#pragma once

#include <cstdint>

#include "simulator/machine/machine.h"
#include "workload/kernel_call.h"

namespace lockstep::simulator {

// One of the call's `count`: max(FLOPs / (peak x share), bytes / (bandwidth x share)) + launch, in picoseconds.
// Products and attention in f32 run at the device's f32 peak.
std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call);

}  // namespace lockstep::simulator
