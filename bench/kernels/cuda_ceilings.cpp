#include <functional>

#include "bench/kernels/device_ceilings.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/memory_loops.h"

namespace lockstep::kernel_bench {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 30;  // larger than the L2 cache of any GPU
constexpr std::int64_t kColumns = 8192;

// Nine samples of a pass over `bytes` of memory, read and written together, behind one that does not count.
Ceiling memory_ceiling(CeilingKind kind, TimedDevice& timed, double bytes, const std::function<void()>& pass) {
  Ceiling ceiling{kind, "cuda", 1, Level::memory, std::nullopt, {}};
  pass();
  for (int k = 0; k < 9; ++k) ceiling.samples.push_back(bytes / timed.us_of(1, pass) / 1e3);
  return ceiling;
}

// All within two arrays of kCopyBytes: a copy of one to the other, a sum over the first, whose parts go to the other,
// and a triad of thirds of both together.
Ceilings memory_ceilings(TimedDevice& timed, Arena& arena) {
  kernels::CudaContext& cuda = timed.context().cuda();
  std::byte* const memory = arena.at_least(2 * kCopyBytes);
  auto* const floats = reinterpret_cast<float*>(memory);
  constexpr auto kBytes = static_cast<double>(kCopyBytes);
  constexpr auto kReadFloats = static_cast<std::int64_t>(kCopyBytes / sizeof(float));
  constexpr std::int64_t kThird = 2 * kReadFloats / 3 / 64 * 64;  // begins at a multiple of 256 bytes
  return {memory_ceiling(CeilingKind::copy, timed, 2 * kBytes,
                         [&] { kernels::copy_on_device(cuda, memory + kCopyBytes, memory, kCopyBytes); }),
          memory_ceiling(CeilingKind::read, timed, kBytes,
                         [&] { kernels::read_on_device(cuda, floats, kReadFloats, floats + kReadFloats); }),
          memory_ceiling(CeilingKind::triad, timed, 3.0 * sizeof(float) * static_cast<double>(kThird), [&] {
            kernels::triad_on_device(cuda, floats, floats + kThird, 3, floats + 2 * kThird, kThird);
          })};
}

}  // namespace

Ceilings measure_cuda_ceilings(core::Device& device) {
  const std::unique_ptr<TimedDevice> by_events = make_timed_cuda(device, "events");
  const std::unique_ptr<TimedDevice> by_graph = make_timed_cuda(device, "graph");
  Arena arena(device);
  Ceilings all = memory_ceilings(*by_events, arena);
  for (core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16, core::DType::f8e4m3}) {
    all.push_back(gemm_ceiling(*by_events, arena, "cuda", 1, dtype, kColumns));
  }
  all.push_back(launch_ceiling(*by_graph, arena, "cuda"));
  return all;
}

}  // namespace lockstep::kernel_bench
