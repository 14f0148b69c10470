// Functions of CUDA's runtime: streams, events, and graphs.
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <utility>

#include "testing/cuda_stand_in/call.h"
#include "testing/cuda_stand_in/refused.h"
#include "testing/cuda_stand_in/runtime.h"
#include "testing/cuda_stand_in/streams.h"

using namespace lockstep::cuda_stand_in;  // NOLINT(google-build-using-namespace): these functions are CUDA's

namespace {

template <class Body>
cudaError_t guarded(Body body) {
  return lockstep::cuda_stand_in::guarded<cudaError_t>(body);
}

Stream& stream_of(Runtime& runtime, cudaStream_t handle) {
  Stream* const stream = runtime.streams.find(handle, this_thread().device);
  if (stream == nullptr) throw Refused(cudaErrorInvalidResourceHandle, "no such stream");
  return *stream;
}

template <class Thing>
const std::shared_ptr<Thing>& find(const std::map<const void*, std::shared_ptr<Thing>>& things, const void* handle) {
  const auto found = things.find(handle);
  if (found == things.end()) throw Refused(cudaErrorInvalidResourceHandle, "no such event or graph");
  return found->second;
}

template <class Thing, class Handle>
void keep(std::map<const void*, std::shared_ptr<Thing>>& things, std::shared_ptr<Thing> thing, Handle* handle) {
  *handle = reinterpret_cast<Handle>(thing.get());
  things[thing.get()] = std::move(thing);
}

void check_not_captured(const Event& event) {
  if (event.capture != 0) throw Refused(cudaErrorCapturedEvent, "the event's latest record was captured");
}

const Event& timed(Runtime& runtime, cudaEvent_t handle) {
  const Event& event = *find(runtime.events, handle);
  if (!event.timed || event.recorded == 0) {
    throw Refused(cudaErrorInvalidResourceHandle, "the event has no time: it was made without, or never recorded");
  }
  if (event.completed < event.recorded) throw Refused(cudaErrorNotReady, "the event is not reached yet");
  return event;
}

void record(Runtime& runtime, cudaEvent_t event, cudaStream_t stream, bool external) {
  runtime.streams.record(stream_of(runtime, stream), find(runtime.events, event), external);
  runtime.advance();
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    *stream = reinterpret_cast<cudaStream_t>(&runtime.streams.make(this_thread().device));
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& lock) {
    const Stream& its = stream_of(runtime, stream);
    runtime.wait(lock, [&] { return its.idle(); });
    runtime.streams.destroy(stream);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& lock) {
    const Stream& its = stream_of(runtime, stream);
    runtime.streams.break_capture(its.capture, "cudaStreamQuery");
    if (!its.idle()) runtime.give_way(lock);
    if (!its.idle()) throw Refused(cudaErrorNotReady, "the stream has work");
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& lock) {
    const Stream& its = stream_of(runtime, stream);
    runtime.streams.break_capture(its.capture, "cudaStreamSynchronize");
    check_may_wait(runtime, "cudaStreamSynchronize");
    runtime.wait(lock, [&] { return its.idle(); });
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    runtime.streams.wait(stream_of(runtime, stream), find(runtime.events, event));
    runtime.advance();
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    auto made = std::make_shared<Event>();
    made->timed = (flags & cudaEventDisableTiming) == 0;
    keep(runtime.events, std::move(made), event);
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    find(runtime.events, event);
    runtime.events.erase(event);
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) { record(runtime, event, stream, false); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    record(runtime, event, stream, (flags & cudaEventRecordExternal) != 0);
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    const Event& its = *find(runtime.events, event);
    check_not_captured(its);
    if (its.completed < its.recorded) throw Refused(cudaErrorNotReady, "the event is not reached yet");
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&](Runtime& runtime, auto& lock) {
    const std::shared_ptr<Event> its = find(runtime.events, event);
    check_not_captured(*its);
    const std::uint64_t number = its->recorded;
    runtime.wait(lock, [&] { return its->completed >= number; });
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    *ms = static_cast<float>(static_cast<double>(timed(runtime, to).ns - timed(runtime, from).ns) / 1e6);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = static_cast<cudaStreamCaptureMode>(std::exchange(this_thread().capture_mode, static_cast<int>(*mode)));
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    runtime.streams.begin_capture(stream_of(runtime, stream), mode != cudaStreamCaptureModeRelaxed);
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    const Capture* const capture = stream_of(runtime, stream).capture;
    *status = capture == nullptr ? cudaStreamCaptureStatusNone
              : capture->broken  ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    Graph work = runtime.streams.end_capture(stream_of(runtime, stream));
    keep(runtime.graphs, std::make_shared<Graph>(std::move(work)), graph);
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long /*flags*/) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    keep(runtime.graphs, std::make_shared<Graph>(*find(runtime.graphs, graph)), executable);
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    stream_of(runtime, stream);
    find(runtime.graphs, graph);
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    runtime.streams.launch(stream_of(runtime, stream), *find(runtime.graphs, graph));
    runtime.advance();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    find(runtime.graphs, graph);
    runtime.graphs.erase(graph);
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    find(runtime.graphs, graph);
    runtime.graphs.erase(graph);
  });
}
