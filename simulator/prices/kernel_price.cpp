#include "simulator/prices/kernel_price.h"

#include <algorithm>
#include <cmath>

#include "simulator/prices/product_time.h"

namespace lockstep::simulator {
namespace {

using workload::KernelClass;

// 8-bit floats where a device has no units for them are decoded (kernels/fp8/gemm_fp8.h).
double peak_tflops(const DeviceSpec& device, core::DType dtype) {
  if (dtype == core::DType::f32) return device.vector_tflops;
  return kernels::kFp8.contains(dtype) && device.fp8_tflops > 0 ? device.fp8_tflops : device.matrix_tflops;
}

// 1e12 FLOP/s are one FLOP per picosecond.
double compute_ps(const DeviceSpec& device, const workload::KernelCall& call, double flops) {
  const KernelClass of = workload::class_of(call);
  if (of == KernelClass::pass) return flops / device.vector_tflops;
  const double matrix = workload::matrix_flops_of(call);
  const double tflops = peak_tflops(device, workload::dtype_of(call)) *
                        share_at(of == KernelClass::product ? device.product : device.attention, matrix);
  const std::optional<workload::Product> product = workload::product_of(call);
  if (!product || device.multiprocessors == 0) return matrix / tflops;
  return product_us(device, *product, tflops) * 1e6;
}

// Measured times by the number of copies; null if the kernel was not measured.
const Measured::Curve* measured_curve(const Machine& machine, const workload::KernelCall& call) {
  if (machine.measured.kernels.empty()) return nullptr;
  const auto found = machine.measured.kernels.find(workload::signature_of(call));
  return found == machine.measured.kernels.end() ? nullptr : &found->second;
}

}  // namespace

std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call) {
  const kernels::Cost cost = workload::cost_of(call);
  const double memory_ps = cost.bytes / (device.memory_gbps * share_at(device.memory, cost.bytes)) * 1e3;
  return std::llround(std::max(compute_ps(device, call, cost.flops), memory_ps) + device.launch_us * 1e6);
}

bool is_measured(const Machine& machine, const workload::KernelCall& call) {
  return measured_curve(machine, call) != nullptr;
}

std::int64_t kernel_ps(const Machine& machine, const workload::KernelCall& call, std::int32_t copies) {
  const Measured::Curve* const us = measured_curve(machine, call);
  return us == nullptr ? kernel_ps(machine.device, call) : std::llround(value_at(*us, copies) * 1e6);
}

std::int64_t least_kernel_ps(const Machine& machine, const workload::KernelCall& call) {
  const Measured::Curve* const us = measured_curve(machine, call);
  if (us == nullptr) return kernel_ps(machine.device, call);
  const auto least =
      std::min_element(us->begin(), us->end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::llround(least->second * 1e6);
}

}  // namespace lockstep::simulator
