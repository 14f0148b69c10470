#include "core/cuda_stream.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "core/backoff.h"
#include "core/cuda_graph.h"
#include "core/error.h"
#include "core/memory_pool.h"
#include "core/wait.h"

namespace lockstep::core {
namespace {

cudaStream_t native_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// Polls until the answer is no longer "not ready", less and less often: other ranks may need this core and the driver.
template <typename Query>
void wait_until(CudaContext& context, const char* call, Query query) {
  const Deadline deadline = Deadline::after(context.timeout);
  const Backoff backoff;
  cudaError_t status = query();
  while (status == cudaErrorNotReady) {
    if (deadline.passed()) {
      context.stuck = true;
      throw Error(Failure::timeout,
                  fmt::format("{}: rank {}, CUDA device {}: work is not done after {} s", call, context.place.rank,
                              context.place.device, std::chrono::duration<double>(context.timeout).count()));
    }
    cudaGetLastError();  // otherwise the next launch would report "not ready" as its error
    backoff.pause();
    status = query();
  }
  check_cuda(status, call, context.place);
}

bool is_done(const CudaContext& context, const char* call, cudaError_t status) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, call, context.place);
  return true;
}

class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool, cudaStream_t stream)
      : context_(std::move(context)), pool_(std::move(pool)), stream_(stream) {
    if (pool_) pool_->add_stream(*this);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    if (pool_) pool_->remove_stream(*this);
    if (stream_ != cudaStreamLegacy && context_->frees()) cudaStreamDestroy(stream_);
  }

  void synchronize() override {
    wait_until(*context_, "cudaStreamQuery", [this] { return cudaStreamQuery(stream_); });
  }
  bool done() override { return is_done(*context_, "cudaStreamQuery", cudaStreamQuery(stream_)); }
  void* native() const override { return stream_; }
  void wait(const Event& event) override {
    check_cuda(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event.native()), 0), "cudaStreamWaitEvent",
               context_->place);
  }

  bool can_capture() const override { return stream_ != cudaStreamLegacy; }
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;

 private:
  std::shared_ptr<CudaContext> context_;
  std::shared_ptr<MemoryPool> pool_;
  cudaStream_t stream_;
};

// The capture is thread-local: other threads may allocate and wait meanwhile, for example ranks of the same process.
void CudaStream::begin_capture() {
  if (!can_capture()) throw usage_error("CUDA's NULL stream cannot be captured into a graph; allowed: another stream");
  pool_->capture_begins();
  const cudaError_t status = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) pool_->graph_ends(pool_->capture_ends());
  check_cuda(status, "cudaStreamBeginCapture", context_->place);
}

std::unique_ptr<Graph> CudaStream::end_capture() {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
  auto made = std::make_unique<CudaGraph>(
      CudaGraph::Parts{.context = context_, .pool = pool_, .kept = pool_->capture_ends(), .graph = graph});
  check_cuda(status, "cudaStreamEndCapture", context_->place);
  made->instantiate(*this);
  return made;
}

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaContext> context, EventTimes times) : context_(std::move(context)) {
    context_->activate();
    const unsigned flags = times == EventTimes::yes ? cudaEventDefault : cudaEventDisableTiming;
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate", context_->place);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override {
    if (context_->frees()) cudaEventDestroy(event_);
  }

  void record(Stream& stream) override {
    check_cuda(cudaEventRecord(event_, native_of(stream)), "cudaEventRecord", context_->place);
  }
  void record_time(Stream& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(native_of(stream), &status), "cudaStreamIsCapturing", context_->place);
    const unsigned flags = status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    check_cuda(cudaEventRecordWithFlags(event_, native_of(stream), flags), "cudaEventRecordWithFlags", context_->place);
  }
  void synchronize() override {
    wait_until(*context_, "cudaEventQuery", [this] { return cudaEventQuery(event_); });
  }
  bool done() override { return is_done(*context_, "cudaEventQuery", cudaEventQuery(event_)); }
  double us_since(const Event& start) const override {
    const auto* other = dynamic_cast<const CudaEvent*>(&start);
    LOCKSTEP_CHECK(other != nullptr, "the events belong to different devices");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, other->event_, event_), "cudaEventElapsedTime", context_->place);
    return 1e3 * static_cast<double>(ms);
  }
  void* native() const override { return event_; }

 private:
  std::shared_ptr<CudaContext> context_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void CudaContext::activate() const {
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
}

bool CudaContext::frees() const {
  return !stuck && std::uncaught_exceptions() == 0;
}

std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool,
                                         StreamPriority priority) {
  context->activate();
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange", context->place);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == StreamPriority::highest ? highest : lowest),
             "cudaStreamCreate", context->place);
  return std::make_unique<CudaStream>(std::move(context), std::move(pool), stream);
}

std::unique_ptr<Stream> default_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool) {
  return std::make_unique<CudaStream>(std::move(context), std::move(pool), cudaStreamLegacy);
}

std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context, EventTimes times) {
  return std::make_unique<CudaEvent>(std::move(context), times);
}

}  // namespace lockstep::core
