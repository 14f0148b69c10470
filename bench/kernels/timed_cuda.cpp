#include <cstdio>

#include "bench/kernels/timed_device.h"
#include "core/capture.h"
#include "kernels/attention/attention_choice.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/stream_gate.h"

namespace lockstep::kernel_bench {
namespace {

// Calls that are queued behind the gate before it opens: no more than a stream holds without blocking the host.
constexpr std::int64_t kMostHeldCalls = 100;

class TimedCuda final : public TimedDevice {
 public:
  TimedCuda(core::Device& device, bool by_graph, const std::string& attention)
      : stream_(device.make_stream()),
        start_(device.make_event()),
        end_(device.make_event()),
        cuda_(device, *stream_),
        context_(cuda_),
        gate_(cuda_),
        by_graph_(by_graph) {
    if (!attention.empty()) kernels::choose_attention(cuda_, attention);
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
  // The device begins when the host is far ahead of it, so that its time does not include the host's launches.
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
                                             const std::string& attention) {
  return std::make_unique<TimedCuda>(device, timing == "graph", attention);
}

}  // namespace lockstep::kernel_bench
