#include "bench/kernels/place.h"
#include "core/capture.h"
#include "kernels/base/cuda_context.h"

namespace lockstep::kernel_bench {
namespace {

class CudaPlace final : public Place {
 public:
  CudaPlace(core::Device& device, bool by_graph)
      : stream_(device.make_stream()),
        start_(device.make_event()),
        end_(device.make_event()),
        cuda_(device, *stream_),
        context_(cuda_),
        by_graph_(by_graph) {}

  const kernels::Context& context() const override { return context_; }
  void wait() override { stream_->synchronize(); }
  std::vector<int> cores() override { return {}; }

  double us_of(std::int64_t calls, const std::function<void()>& call) override {
    const auto all = [&] {
      for (std::int64_t i = 0; i < calls; ++i) call();
    };
    if (!by_graph_) return between_events(all);
    const auto graph = core::capture(*stream_, all);
    return between_events([&] { graph->launch(*stream_); });
  }

 private:
  double between_events(const std::function<void()>& work) {
    start_->record(*stream_);
    work();
    end_->record(*stream_);
    end_->synchronize();
    return end_->us_since(*start_);
  }

  std::unique_ptr<core::Stream> stream_;
  std::unique_ptr<core::Event> start_;
  std::unique_ptr<core::Event> end_;
  kernels::CudaContext cuda_;
  kernels::Context context_;
  bool by_graph_;
};

}  // namespace

std::unique_ptr<Place> make_cuda_place(core::Device& device, const std::string& timing) {
  return std::make_unique<CudaPlace>(device, timing == "graph");
}

}  // namespace lockstep::kernel_bench
