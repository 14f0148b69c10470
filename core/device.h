// The Device seam: where memory is, where work is queued, and how it is timed. The CPU is one of the devices, so that a
// sweep, a kernel benchmark or a trainer step is written once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/error.h"

namespace lockstep::core {

class Event;
class Graph;

// An in-order queue of work. On the CPU a call does its work before it returns, so a stream holds nothing.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void
  synchronize() = 0;        // waits until all queued work is done; throws Error(timeout) at the device's deadline
  virtual bool done() = 0;  // returns whether it is, without waiting; throws Error if the work failed
  virtual void* native() const = 0;  // cudaStream_t, or nullptr on the CPU
  // Work queued from now on begins after all work that was queued before the event was last recorded. The event may
  // belong to another stream; it must have been recorded.
  virtual void wait(const Event& event) = 0;

  // Between begin_capture() and end_capture(), work queued on the stream is recorded, not run (core/device.h).
  // begin_capture() throws a usage Error if can_capture() is false. One capture per device at a time, begun and ended
  // by one thread.
  virtual bool can_capture() const = 0;
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
};

// A timed point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  // Like record(), but on a captured stream each launch of the graph records it, for timing; captured work must not
  // wait for it.
  virtual void record_time(Stream& stream) { record(stream); }
  virtual void synchronize() = 0;                         // waits until the recorded point is passed, as Stream's
  virtual bool done() = 0;                                // returns whether it is passed, without waiting, as Stream's
  virtual double us_since(const Event& start) const = 0;  // both must be recorded and done
  virtual void* native() const = 0;                       // cudaEvent_t, or nullptr on the CPU
};

// Recorded work. Release the memory that it refers to after the graph, except for memory released while it was
// recorded. Destroy it before its device.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) = 0;  // queues all of the recorded work
};

// One device as one rank sees it. Owned by the rank that made it and not shared between threads, except that any thread
// may call allocate*() and release*() of a CUDA device. Destroy its streams, events and graphs before it.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;     // "Intel(R) Xeon(R) Processor", "NVIDIA H100 80GB HBM3"
  virtual int index() const = 0;            // CUDA's number of the device in this process; 0 on the CPU
  virtual bool is_host_memory() const = 0;  // true if the host may read and write what allocate() returns

  // ---- memory. Aligned to 128 bytes; other ranks of the process can reach it if the device allows that at all. Throws
  // Error with the bytes requested and the bytes free. Freed by a release, or with the device. A device may keep
  // released memory and hand it out again.

  // Allocates memory that any stream may use.
  virtual void* allocate(std::size_t size_bytes) = 0;
  // Makes the memory reusable when all work queued so far on the device's streams is done.
  virtual void release(void* memory) = 0;

  // Allocates memory for work queued on `stream` from now on, or work that waits for it: work queued earlier on
  // `stream` may still be using it.
  virtual void* allocate_on(Stream& /*stream*/, std::size_t size_bytes) { return allocate(size_bytes); }
  // Makes memory of any of the three allocate calls reusable when the work queued so far on `stream` is done. `stream`
  // must be the one that it was allocated on and that used it, or must have waited for those.
  virtual void release_on(Stream& /*stream*/, void* memory) { release(memory); }

  // Allocates memory for any stream that other processes may open (core/device_cuda.h); they see whole allocations
  // only.
  virtual void* allocate_for_peers(std::size_t size_bytes) { return allocate(size_bytes); }

  virtual std::size_t allocated_bytes() const = 0;  // bytes that the program holds, as requested
  virtual std::size_t peak_bytes() const = 0;
  // Bytes that the device has taken for allocations, and those that it keeps for reuse.
  virtual std::size_t reserved_bytes() const { return allocated_bytes(); }
  // Frees the memory that is kept and that no work uses, for other ranks and other programs on the device.
  virtual void free_unused() {}

  // Allocates host memory with which copy_on() runs asynchronously: page-locked for CUDA, ordinary memory on the CPU.
  // Freed by release_pinned(), or with the device; no queued work may use it then.
  virtual void* allocate_pinned(std::size_t size_bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  // ---- copies. Complete on return; the host's side may be any memory. They do not wait for streams: synchronize
  // first.
  virtual void copy_to_device(void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t size_bytes) = 0;
  // Queued on a stream; each side is memory of the device or pinned memory.
  virtual void copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void zero_on(Stream& stream, void* memory, std::size_t size_bytes) = 0;  // memory of the device

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // False on a stand-in for a GPU that runs no kernels (docs/gpu.md, "The dry run"): nobody draws inputs for it, or
  // compares its results.
  virtual bool computes() const { return true; }
};

// Graphs of captured work.

// Records what work() queues on the stream as a graph: calls work() once and runs none of it. work() may queue on other
// streams only after they wait for an event of this stream, and this stream must wait for an event of theirs at the
// end. work() must not wait on the host. Memory that it needs beyond what the device has kept is taken from the device,
// which may wait for running work: to avoid that, run work() once before and synchronize. Throws what work() throws;
// the capture has then ended, too.
std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& work);

// The CPU as a Device: memory from an allocator of the caller's choice, events from the steady clock, empty streams.

// Where the memory of a CPU device comes from: private memory, or a region that ranks share.
struct HostAllocator {
  std::function<void*(std::size_t size_bytes)>
      allocate;  // 128-byte aligned; throws Error if there is not enough memory
  std::function<void(void* memory, std::size_t size_bytes)> release;
};

// Allocates zeroed memory of this process. Blocks of at least 4 MiB begin on a 2 MiB boundary and request huge pages.
HostAllocator private_memory();

// Bytes that the system could still hand out: the minimum of free memory and the limits of our control groups.
std::size_t available_host_bytes();

std::unique_ptr<Device> make_cpu_device(HostAllocator allocator = private_memory());

// A piece of a device's memory that is released by its owner's destructor. The device must outlive it.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(Device& device, std::size_t size_bytes) : memory_(device.allocate(size_bytes), Release{&device}) {}
  // Allocates memory that other processes may open.
  static DeviceBlock for_peers(Device& device, std::size_t size_bytes) {
    DeviceBlock block;
    block.memory_ = {device.allocate_for_peers(size_bytes), Release{&device}};
    return block;
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }

 private:
  struct Release {
    Device* device;
    void operator()(void* memory) const { device->release(memory); }
  };

  std::unique_ptr<void, Release> memory_;
};

// Page-locked host memory, released by its owner's destructor, for copies queued on a stream.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // The device must outlive it. No queued work may use it when it is destroyed.
  PinnedMemory(Device& device, std::size_t size_bytes) : data_(device.allocate_pinned(size_bytes), Release{&device}) {}

  bool given() const { return data_ != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  struct Release {
    Device* device;
    void operator()(void* memory) const {
      try {
        device->release_pinned(memory);
      } catch (const Error&) {
        // The device failed before; its memory is freed with the process.
      }
    }
  };

  std::unique_ptr<void, Release> data_;
};

}  // namespace lockstep::core
