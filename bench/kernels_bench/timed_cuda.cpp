#include <cstdio>
#include <functional>

#include "bench/kernels_bench/roofline.h"
#include "bench/kernels_bench/timed_device.h"
#include "core/device.h"
#include "kernels/attention/attention.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_timing.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernel_bench {
namespace {

// Calls that are queued before the gate opens: no more than a stream holds without blocking the host.
constexpr std::int64_t kMostHeldCalls = 100;

class TimedCuda final : public TimedDevice {
 public:
  TimedCuda(core::Device& device, bool by_graph, const CudaChoices& choices)
      : stream_(device.make_stream()),
        start_(device.make_event()),
        end_(device.make_event()),
        cuda_(device, *stream_),
        context_(cuda_),
        gate_(cuda_),
        by_graph_(by_graph) {
    if (!choices.attention.empty()) kernels::choose_attention(cuda_, choices.attention);
    if (!choices.experts.empty()) kernels::choose_experts(cuda_, choices.experts);
  }

  const kernels::Context& context() const override { return context_; }
  void wait() override { stream_->synchronize(); }
  std::vector<int> cores() override { return {}; }

  double us_of(std::int64_t calls, const std::function<void()>& call) override {
    if (!by_graph_) return between_events(calls, call);
    const auto graph = core::capture(*stream_, [&] {
      for (std::int64_t i = 0; i < calls; ++i) call();
    });
    return between_events(1, [&] { graph->launch(*stream_); });
  }

 private:
  // The device starts once the host is far ahead, so that its time does not include the host's launches.
  double between_events(std::int64_t calls, const std::function<void()>& call) {
    if (uses_gate_) gate_.close();
    start_->record(*stream_);
    for (std::int64_t i = 0; i < calls; ++i) {
      if (i == kMostHeldCalls) gate_.open();
      call();
    }
    end_->record(*stream_);
    gate_.open();
    end_->synchronize();
    if (uses_gate_ && gate_.lost_patience()) go_on_without_gate();
    return end_->us_since(*start_);
  }

  void go_on_without_gate() {
    uses_gate_ = false;
    std::fprintf(stderr,
                 "kernels_bench: a launch blocked until the device had made room; from now on, times of single calls "
                 "include the host's launches\n");
  }

  std::unique_ptr<core::Stream> stream_;
  std::unique_ptr<core::Event> start_;
  std::unique_ptr<core::Event> end_;
  kernels::CudaContext cuda_;
  kernels::Context context_;
  kernels::StreamGate gate_;
  bool by_graph_;
  bool uses_gate_ = true;
};

}  // namespace

std::unique_ptr<TimedDevice> make_timed_cuda(core::Device& device, const std::string& timing,
                                             const CudaChoices& choices) {
  return std::make_unique<TimedCuda>(device, timing == "graph", choices);
}

namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 30;  // larger than the L2 cache of any GPU
constexpr std::int64_t kColumns = 8192;

// Nine samples of a pass over `bytes` of memory, read and written together, after one that does not count.
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
