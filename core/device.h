// The Device seam: where memory lives, where work is queued, and how its time is taken. The CPU is one device among
// others, so that a sweep, a kernel benchmark or a trainer step is written once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::core {

class Event;
class Graph;

// Work in order. On the CPU all work is done when its call returns, and a stream holds nothing.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void
  synchronize() = 0;        // waits until all queued work is done; throws Error(timeout) at the device's deadline
  virtual bool done() = 0;  // whether it is, without waiting; throws Error if the work failed
  virtual void* native() const = 0;  // cudaStream_t, or nullptr on the CPU
  // Work queued from now on begins when what the event was last recorded after is done. The event may be another
  // stream's, and must have been recorded.
  virtual void wait(const Event& event) = 0;

  // Between the two, work that is queued on the stream is recorded, not run (core/capture.h). begin_capture() throws a
  // usage Error where can_capture() is false. One capture of a device at a time, begun and ended by one thread.
  virtual bool can_capture() const = 0;
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
};

// A point in a stream's work, with a time.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  // Where the stream is captured: recorded by each launch of the graph, for its time; no captured work may wait for it.
  // Otherwise record().
  virtual void record_time(Stream& stream) { record(stream); }
  virtual void synchronize() = 0;                         // waits until the recorded point is passed; as Stream's
  virtual bool done() = 0;                                // whether it is, without waiting; as Stream's
  virtual double us_since(const Event& start) const = 0;  // both recorded and done
  virtual void* native() const = 0;                       // cudaEvent_t, or nullptr on the CPU
};

// Recorded work. The memory it refers to is released after it, but for what was released while it was recorded. Goes
// before its device does.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) = 0;  // queues all of it
};

// One device as one rank sees it. Owned by the rank that made it; not shared between threads, but that any may call
// allocate*() and release*() of a CUDA device's memory. Its streams, events and graphs go before it does.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;     // "Intel(R) Xeon(R) Processor", "NVIDIA H100 80GB HBM3"
  virtual int index() const = 0;            // CUDA's number of the device in this process; 0 on the CPU
  virtual bool is_host_memory() const = 0;  // whether the host may read and write what allocate() returns

  // ---- memory. 128-byte aligned; other ranks of the process can reach it if the device allows it at all. Throws Error
  // with the bytes asked for and what is free. Freed by a release, or with the device. A device may keep what is
  // released, to hand it out again.

  // For any stream.
  virtual void* allocate(std::size_t size_bytes) = 0;
  // Usable when all that has been queued on the device's streams so far is done.
  virtual void release(void* memory) = 0;

  // For work that is queued on `stream` from now on, or that waits for it: it may be memory that work before it uses.
  virtual void* allocate_on(Stream& /*stream*/, std::size_t size_bytes) { return allocate(size_bytes); }
  // Usable when what has been queued on `stream` so far is done. The stream is the one that it was allocated on and
  // that used it, or has waited for those. For memory of any of the three allocate calls.
  virtual void release_on(Stream& /*stream*/, void* memory) { release(memory); }

  // For any stream, and to be shown to other processes (core/cuda_peers.h), which see whole allocations only.
  virtual void* allocate_for_peers(std::size_t size_bytes) { return allocate(size_bytes); }

  virtual std::size_t allocated_bytes() const = 0;  // what the program holds, as it asked for it
  virtual std::size_t peak_bytes() const = 0;
  // Bytes that the device has taken for that, and those that it keeps to hand out again.
  virtual std::size_t reserved_bytes() const { return allocated_bytes(); }
  virtual std::size_t peak_reserved_bytes() const { return peak_bytes(); }
  // Frees what is kept and no work uses: for other ranks and other programs on the device.
  virtual void free_unused() {}

  // Memory of the host from which and to which copy_on() runs beside the host: page-locked for CUDA, plain on the CPU.
  // Freed by release_pinned(), or with the device. No queued work may use it then.
  virtual void* allocate_pinned(std::size_t size_bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  // ---- copies. Done when they return; the host's side may be any memory. They wait for no stream: synchronize it
  // first.
  virtual void copy_to_device(void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t size_bytes) = 0;
  // Queued on a stream; each side is memory of the device or pinned.
  virtual void copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void zero_on(Stream& stream, void* memory, std::size_t size_bytes) = 0;  // memory of the device

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace lockstep::core
