#include "core/cuda_stream.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::core {
namespace {

cudaStream_t native_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// Asks until the answer is no longer "not ready". Yields between two looks: other ranks may need this core.
template <typename Query>
void wait(CudaContext& context, const char* call, Query query) {
  const Deadline deadline = Deadline::after(context.timeout);
  cudaError_t status = query();
  while (status == cudaErrorNotReady) {
    if (deadline.passed()) {
      context.stuck = true;
      throw Error(Failure::timeout,
                  fmt::format("{}: rank {}, CUDA device {}: work is not done after {} s", call, context.place.rank,
                              context.place.device, std::chrono::duration<double>(context.timeout).count()));
    }
    std::this_thread::yield();
    status = query();
  }
  check_cuda(status, call, context.place);
}

class CudaStream final : public Stream {
 public:
  explicit CudaStream(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {
    context_->activate();
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate", context_->place);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    if (!context_->stuck) cudaStreamDestroy(stream_);
  }

  void synchronize() override {
    wait(*context_, "cudaStreamQuery", [this] { return cudaStreamQuery(stream_); });
  }
  bool done() override {
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) return false;
    check_cuda(status, "cudaStreamQuery", context_->place);
    return true;
  }
  void* native() const override { return stream_; }

 private:
  std::shared_ptr<CudaContext> context_;
  cudaStream_t stream_ = nullptr;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {
    context_->activate();
    check_cuda(cudaEventCreate(&event_), "cudaEventCreate", context_->place);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override {
    if (!context_->stuck) cudaEventDestroy(event_);
  }

  void record(Stream& stream) override {
    check_cuda(cudaEventRecord(event_, native_of(stream)), "cudaEventRecord", context_->place);
  }
  void synchronize() override {
    wait(*context_, "cudaEventQuery", [this] { return cudaEventQuery(event_); });
  }
  double us_since(const Event& start) const override {
    const auto* other = dynamic_cast<const CudaEvent*>(&start);
    LOCKSTEP_CHECK(other != nullptr, "the events are of two devices");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, other->event_, event_), "cudaEventElapsedTime", context_->place);
    return 1e3 * static_cast<double>(ms);
  }

 private:
  std::shared_ptr<CudaContext> context_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void CudaContext::activate() const {
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
}

std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context) {
  return std::make_unique<CudaStream>(std::move(context));
}

std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context) {
  return std::make_unique<CudaEvent>(std::move(context));
}

}  // namespace lockstep::core
