// What a kernel takes on a device: the roofline, with the shares of the peaks that work of its size reaches.
#pragma once

#include <cstdint>

#include "simulator/machine/machine.h"
#include "simulator/model/layer_ops.h"

namespace lockstep::simulator {

// max(FLOPs / (peak x share), bytes / (bandwidth x share)) + launch, in picoseconds.
std::int64_t kernel_ps(const DeviceSpec& device, const Kernel& kernel);

}  // namespace lockstep::simulator
