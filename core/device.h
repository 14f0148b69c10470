// The Device seam: where memory lives, where work is queued, and how its time is taken. The CPU is one device among
// others, so that a sweep, a kernel benchmark or a trainer step is written once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::core {

// Work in order. On the CPU all work is done when its call returns, and a stream holds nothing.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void
  synchronize() = 0;        // waits until all queued work is done; throws Error(timeout) at the device's deadline
  virtual bool done() = 0;  // whether it is, without waiting; throws Error if the work failed
  virtual void* native() const = 0;  // cudaStream_t, or nullptr on the CPU
};

// A point in a stream's work, with a time.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  virtual void synchronize() = 0;                         // waits until the recorded point is passed; as Stream's
  virtual double us_since(const Event& start) const = 0;  // both recorded and done
};

// One device as one rank sees it. Owned by the rank that made it; not shared between threads. Its streams and events go
// before it does.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;     // "Intel(R) Xeon(R) Processor", "NVIDIA H100 80GB HBM3"
  virtual int index() const = 0;            // CUDA's number of the device in this process; 0 on the CPU
  virtual bool is_host_memory() const = 0;  // whether the host may read and write what allocate() returns

  // 128-byte aligned memory that the other ranks of the world can reach if the device allows it at all. Throws Error
  // with the bytes asked for and what is free. Freed by release(), or with the device.
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual std::size_t allocated_bytes() const = 0;
  virtual std::size_t peak_bytes() const = 0;

  // Done when they return; the host's side may be any memory. They wait for no stream: synchronize it first.
  virtual void copy_to_device(void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t size_bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace lockstep::core
