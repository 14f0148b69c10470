#include "bench/kernels/device_ceilings.h"
#include "kernels/base/cuda_context.h"

namespace lockstep::kernel_bench {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 30;  // larger than the L2 cache of any GPU
constexpr std::int64_t kColumns = 8192;

Ceiling copy_ceiling(TimedDevice& timed, Arena& arena) {
  std::byte* const memory = arena.at_least(2 * kCopyBytes);
  const auto copy = [&] { kernels::copy_on_device(timed.context().cuda(), memory + kCopyBytes, memory, kCopyBytes); };
  Ceiling ceiling{CeilingKind::copy, "cuda", 1, Level::memory, std::nullopt, {}};
  copy();
  for (int k = 0; k < 9; ++k) {
    ceiling.samples.push_back(2.0 * static_cast<double>(kCopyBytes) / timed.us_of(1, copy) / 1e3);
  }
  return ceiling;
}

}  // namespace

Ceilings measure_cuda_ceilings(core::Device& device) {
  const std::unique_ptr<TimedDevice> by_events = make_timed_cuda(device, "events");
  const std::unique_ptr<TimedDevice> by_graph = make_timed_cuda(device, "graph");
  Arena arena(device);
  Ceilings all{copy_ceiling(*by_events, arena)};
  for (core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16, core::DType::f8e4m3}) {
    all.push_back(gemm_ceiling(*by_events, arena, "cuda", 1, dtype, kColumns));
  }
  all.push_back(launch_ceiling(*by_graph, arena, "cuda"));
  return all;
}

}  // namespace lockstep::kernel_bench
