#include "core/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "core/cuda_call.h"
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
                  fmt::format("{}: rank {}, CUDA device {}: work is not done after {} s", call, context.caller.rank,
                              context.caller.device, std::chrono::duration<double>(context.timeout).count()));
    }
    cudaGetLastError();  // otherwise the next launch would report "not ready" as its error
    backoff.pause();
    status = query();
  }
  check_cuda(status, call, context.caller);
}

bool is_done(const CudaContext& context, const char* call, cudaError_t status) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, call, context.caller);
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
               context_->caller);
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
  check_cuda(status, "cudaStreamBeginCapture", context_->caller);
}

std::unique_ptr<Graph> CudaStream::end_capture() {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
  auto result = std::make_unique<CudaGraph>(
      CudaGraph::Parts{.context = context_, .pool = pool_, .kept = pool_->capture_ends(), .graph = graph});
  check_cuda(status, "cudaStreamEndCapture", context_->caller);
  result->instantiate(*this);
  return result;
}

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaContext> context, EventTimes times) : context_(std::move(context)) {
    context_->activate();
    const unsigned flags = times == EventTimes::yes ? cudaEventDefault : cudaEventDisableTiming;
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate", context_->caller);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override {
    if (context_->frees()) cudaEventDestroy(event_);
  }

  void record(Stream& stream) override {
    check_cuda(cudaEventRecord(event_, native_of(stream)), "cudaEventRecord", context_->caller);
  }
  void record_time(Stream& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(native_of(stream), &status), "cudaStreamIsCapturing", context_->caller);
    const unsigned flags = status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    check_cuda(cudaEventRecordWithFlags(event_, native_of(stream), flags), "cudaEventRecordWithFlags",
               context_->caller);
  }
  void synchronize() override {
    wait_until(*context_, "cudaEventQuery", [this] { return cudaEventQuery(event_); });
  }
  bool done() override { return is_done(*context_, "cudaEventQuery", cudaEventQuery(event_)); }
  double us_since(const Event& start) const override {
    const auto* other = dynamic_cast<const CudaEvent*>(&start);
    LOCKSTEP_CHECK(other != nullptr, "the events belong to different devices");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, other->event_, event_), "cudaEventElapsedTime", context_->caller);
    return 1e3 * static_cast<double>(ms);
  }
  void* native() const override { return event_; }

 private:
  std::shared_ptr<CudaContext> context_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void CudaContext::activate() const {
  check_cuda(cudaSetDevice(caller.device), "cudaSetDevice", caller);
}

bool CudaContext::frees() const {
  return !stuck && std::uncaught_exceptions() == 0;
}

std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool,
                                         StreamPriority priority) {
  context->activate();
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange", context->caller);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == StreamPriority::highest ? highest : lowest),
             "cudaStreamCreate", context->caller);
  return std::make_unique<CudaStream>(std::move(context), std::move(pool), stream);
}

std::unique_ptr<Stream> default_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool) {
  return std::make_unique<CudaStream>(std::move(context), std::move(pool), cudaStreamLegacy);
}

std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context, EventTimes times) {
  return std::make_unique<CudaEvent>(std::move(context), times);
}

CudaGraph::CudaGraph(Parts parts) : parts_(std::move(parts)) {}

// CUDA keeps a running executable graph until it has ended (cudaGraphExecDestroy).
CudaGraph::~CudaGraph() {
  if (parts_.context->frees()) {
    if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
    if (parts_.graph != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(parts_.graph));
  }
  parts_.pool->graph_ends(parts_.kept);
}

void CudaGraph::instantiate(Stream& stream) {
  parts_.context->activate();
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiateWithFlags(&executable, static_cast<cudaGraph_t>(parts_.graph), 0),
             "cudaGraphInstantiateWithFlags", parts_.context->caller);
  executable_ = executable;
  check_cuda(cudaGraphUpload(executable, static_cast<cudaStream_t>(stream.native())), "cudaGraphUpload",
             parts_.context->caller);
}

void CudaGraph::launch(Stream& stream) {
  check_launch(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), static_cast<cudaStream_t>(stream.native())),
               "a CUDA graph", parts_.context->caller, stream);
}

namespace {

// Large enough to reach the link's speed, small enough that the first and the last piece, which overlap nothing, are
// short.
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

}  // namespace

CudaStaging::CudaStaging(std::shared_ptr<CudaContext> context)
    : context_(std::move(context)), stream_(default_cuda_stream(context_)) {
  for (Block& block : blocks_) {
    block.free = make_cuda_event(context_, EventTimes::no);
    block.free->record(*stream_);
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, kBlockBytes), "cudaMallocHost", context_->caller);
    block.memory = static_cast<std::byte*>(memory);
  }
}

CudaStaging::~CudaStaging() {
  for (Block& block : blocks_) {
    if (context_->frees()) cudaFreeHost(block.memory);
  }
}

void CudaStaging::copy_async(void* to, const void* from, std::size_t size_bytes) {
  check_cuda(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream_->native())),
             "cudaMemcpyAsync", context_->caller);
}

void CudaStaging::to_device(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  for (std::size_t at = 0, turn = 0; at < size_bytes; at += kBlockBytes, turn = 1 - turn) {
    Block& block = blocks_.at(turn);
    const std::size_t piece_bytes = std::min(kBlockBytes, size_bytes - at);
    block.free->synchronize();
    std::memcpy(block.memory, from + at, piece_bytes);
    copy_async(to + at, block.memory, piece_bytes);
    block.free->record(*stream_);
  }
  stream_->synchronize();
}

void CudaStaging::to_host(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  std::array<Piece, 2> pieces;  // [block]: piece in it that has not been copied to its destination
  std::size_t turn = 0;
  for (std::size_t at = 0; at < size_bytes; at += kBlockBytes, turn = 1 - turn) {
    land(blocks_.at(turn), pieces.at(turn));
    pieces.at(turn) = {.to = to + at, .size_bytes = std::min(kBlockBytes, size_bytes - at)};
    copy_async(blocks_.at(turn).memory, from + at, pieces.at(turn).size_bytes);
    blocks_.at(turn).free->record(*stream_);
  }
  land(blocks_.at(turn), pieces.at(turn));
  land(blocks_.at(1 - turn), pieces.at(1 - turn));
}

void CudaStaging::land(Block& block, Piece& piece) {
  if (piece.size_bytes == 0) return;
  block.free->synchronize();
  std::memcpy(piece.to, block.memory, piece.size_bytes);
  piece = {};
}

}  // namespace lockstep::core
