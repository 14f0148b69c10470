#include "testing/cuda_stand_in/streams.h"

#include <driver_types.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "testing/cuda_stand_in/refused.h"

namespace lockstep::cuda_stand_in {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void merge(Progress& into, const Progress& from) {
  for (const auto& [stream, count] : from) into[stream] = std::max(into[stream], count);
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Stream& Streams::make(int device) {
  auto stream = std::make_unique<Stream>(Stream{.id = ++last_id_, .device = device});
  Stream& made = *stream;
  streams_[&made] = std::move(stream);
  return made;
}

void Streams::destroy(const void* handle) {
  if (streams_.erase(handle) == 0) throw Refused(cudaErrorInvalidResourceHandle, "no such stream");
}

Stream* Streams::find(const void* handle, int device) {
  if (handle != nullptr && handle != cudaStreamLegacy) {
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second.get();
  }
  Stream*& null_stream = null_streams_[device];
  if (null_stream == nullptr) null_stream = &make(device);
  return null_stream;
}

void Streams::add(Stream& stream, Work work) {
  if (stream.capture == nullptr) {
    queue(stream, std::move(work));
    return;
  }
  stream.capture->work.push_back(std::move(work));
  ++stream.capture->streams[&stream][&stream];
}

void Streams::queue(Stream& stream, Work work) {
  if (auto* const kernel = std::get_if<KernelWork>(&work)) {
    kernel->launch.number = ++num_launches_;
    if (keeps_launches) launches.push_back(kernel->launch);
  } else if (auto* const record = std::get_if<RecordWork>(&work)) {
    record->number = ++record->event->recorded;
  }
  stream.queue.push_back(std::move(work));
}

void Streams::record(Stream& stream, const std::shared_ptr<Event>& event, bool external) {
  if (stream.capture != nullptr && !external) {
    event->capture = stream.capture->id;
    event->before = stream.capture->streams[&stream];
    return;
  }
  event->capture = 0;
  add(stream, RecordWork{.event = event, .number = 0});
}

// An event that was recorded in a capture takes the stream that waits for it into the capture.
void Streams::wait(Stream& stream, const std::shared_ptr<Event>& event) {
  if (event->capture == 0) {
    if (stream.capture != nullptr) {
      stream.capture->broken = true;
      throw Refused(cudaErrorStreamCaptureIsolation, "a captured stream waits for an event that was not captured");
    }
    add(stream, WaitWork{.event = event, .number = event->recorded});
    return;
  }
  const auto capture = captures_.find(event->capture);
  if (capture == captures_.end()) {
    throw Refused(cudaErrorCapturedEvent, "the event was recorded in a capture, which has ended");
  }
  if (stream.capture != nullptr && stream.capture != &capture->second) {
    capture->second.broken = stream.capture->broken = true;
    throw Refused(cudaErrorStreamCaptureMerge, "a captured stream waits for an event of another capture");
  }
  stream.capture = &capture->second;
  merge(stream.capture->streams[&stream], event->before);
}

void Streams::launch(Stream& stream, const Graph& graph) {
  if (stream.capture != nullptr) {
    throw Refused(cudaErrorStreamCaptureUnsupported, "a graph is launched while its stream is captured");
  }
  for (const Work& work : graph) queue(stream, work);
}

void Streams::begin_capture(Stream& stream, bool strict) {
  const bool is_null = std::any_of(null_streams_.begin(), null_streams_.end(),
                                   [&](const auto& known) { return known.second == &stream; });
  if (is_null) throw Refused(cudaErrorStreamCaptureUnsupported, "the NULL stream cannot be captured");
  if (stream.capture != nullptr) throw Refused(cudaErrorIllegalState, "the stream is captured already");
  const std::uint64_t id = ++last_id_;
  Capture& capture = captures_[id];
  capture = {.id = id, .origin = &stream, .begun_by = std::this_thread::get_id(), .strict = strict};
  capture.streams[&stream];
  stream.capture = &capture;
}

Graph Streams::end_capture(Stream& stream) {
  Capture* const capture = stream.capture;
  if (capture == nullptr || capture->origin != &stream) {
    throw Refused(capture == nullptr ? cudaErrorIllegalState : cudaErrorStreamCaptureUnmatched,
                  "no capture was begun on this stream");
  }
  Progress& joined = capture->streams[&stream];
  bool all_joined = true;
  for (auto& [member, progress] : capture->streams) {
    member->capture = nullptr;
    all_joined = all_joined && joined[member] == progress[member];
  }
  const bool broken = capture->broken;
  Graph work = std::move(capture->work);
  captures_.erase(capture->id);
  if (broken) throw Refused(cudaErrorStreamCaptureInvalidated, "a call that a capture forbids was made during it");
  if (!all_joined) throw Refused(cudaErrorStreamCaptureUnjoined, "a stream that was taken in is not joined");
  return work;
}

void Streams::check_no_capture(const char* call) {
  for (auto& [id, capture] : captures_) {
    if (capture.strict && capture.begun_by == std::this_thread::get_id()) break_capture(&capture, call);
  }
}

void Streams::break_capture(Capture* capture, const char* call) {
  if (capture == nullptr) return;
  capture->broken = true;
  throw Refused(cudaErrorStreamCaptureUnsupported, fmt::format("{} is forbidden during a capture", call));
}

bool Streams::idle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& known) { return known.second->idle(); });
}

void Streams::abandon() {
  for (const auto& [handle, stream] : streams_) {
    stream->queue.clear();
    stream->running.clear();
  }
  stream_of_kernel_.clear();
  num_running_ = 0;
}

void Streams::kernel_ended(std::uint64_t number) {
  const auto found = stream_of_kernel_.find(number);
  if (found == stream_of_kernel_.end()) return;
  std::erase(found->second->running, number);
  stream_of_kernel_.erase(found);
  --num_running_;
}

void Streams::advance(Executor* executor) {
  for (const DeviceMemory::Event& event : memory_.take_events()) {
    if (executor == nullptr) continue;
    if (event.allocated) executor->on_allocated(event.begin, event.size_bytes);
    if (!event.allocated) executor->on_freed(event.begin, event.size_bytes);
    // The host writes page-locked memory without a call.
    const auto memory = memory_.at(event.begin);
    if (event.allocated && memory && memory->kind == MemoryKind::pinned)
      executor->on_written(event.begin, event.size_bytes);
  }
  for (bool moved = true; std::exchange(moved, false);) {
    for (const auto& [handle, stream] : streams_) {
      while (advance(*stream, executor)) moved = true;
    }
  }
}

// Does the first work of a stream's queue; false if it must wait.
bool Streams::advance(Stream& stream, Executor* executor) {
  if (stream.queue.empty()) return false;
  Work& first = stream.queue.front();
  if (auto* const kernel = std::get_if<KernelWork>(&first)) {
    if (!begin(stream, *kernel, executor)) return false;
    stream.queue.pop_front();
    return true;
  }
  if (!stream.running.empty()) return false;
  const auto* const wait = std::get_if<WaitWork>(&first);
  if (wait != nullptr && wait->event->completed < wait->number) return false;
  const Work work = std::move(first);
  stream.queue.pop_front();  // first, as a copy may be refused
  if (const auto* const record = std::get_if<RecordWork>(&work)) {
    record->event->completed = std::max(record->event->completed, record->number);
    record->event->ns = now_ns();
  } else if (const auto* const copy = std::get_if<CopyWork>(&work)) {
    run(*copy, executor);
  } else if (const auto* const fill = std::get_if<FillWork>(&work)) {
    run(*fill, executor);
  }
  return true;
}

bool Streams::begin(Stream& stream, KernelWork& work, Executor* executor) {
  const std::size_t allowed = work.early ? 1 : 0;  // kernels that may run before it
  if (stream.running.size() > allowed) return false;
  if (executor == nullptr) return true;
  work.launch.after = stream.running.empty() ? 0 : stream.running.back();
  executor->begin(work.launch);
  stream.running.push_back(work.launch.number);
  stream_of_kernel_[work.launch.number] = &stream;
  ++num_running_;
  return true;
}

void Streams::run(const CopyWork& work, Executor* executor) {
  memory_.check(work.to, work.size_bytes, "the destination of a copy");
  if (!work.staged) memory_.check(work.from, work.size_bytes, "the source of a copy");
  std::memmove(pointer(work.to), work.staged ? work.staged->data() : pointer(work.from), work.size_bytes);
  if (executor != nullptr) executor->on_written(work.to, work.size_bytes);
}

void Streams::run(const FillWork& work, Executor* executor) {
  memory_.check(work.to, work.size_bytes, "the destination of a fill");
  memory_.fill(work.to, work.value, work.size_bytes);
  if (executor != nullptr) executor->on_written(work.to, work.size_bytes);
}

}  // namespace lockstep::cuda_stand_in
