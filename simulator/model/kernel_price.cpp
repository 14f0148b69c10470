#include "simulator/model/kernel_price.h"

#include <algorithm>
#include <cmath>

namespace lockstep::simulator {
namespace {

// 1e12 FLOP/s are one FLOP a picosecond.
double compute_ps(const DeviceSpec& device, const Kernel& kernel) {
  switch (kernel.kind) {
    case Kernel::Kind::product:
      return kernel.flops / (device.matrix_tflops * share_at(device.product, kernel.flops));
    case Kernel::Kind::attention:
      return kernel.flops / (device.matrix_tflops * share_at(device.attention, kernel.flops));
    case Kernel::Kind::pass:
      return kernel.flops / device.vector_tflops;
  }
  return 0;
}

}  // namespace

std::int64_t kernel_ps(const DeviceSpec& device, const Kernel& kernel) {
  const double memory_ps = kernel.bytes / (device.memory_gbps * share_at(device.memory, kernel.bytes)) * 1e3;
  const double one = std::max(compute_ps(device, kernel), memory_ps) + device.launch_us * 1e6;
  return std::llround(kernel.count * one);
}

}  // namespace lockstep::simulator
