// Streams, events, captures and graphs of the stand-in: queues of work, each in its order, that advance() moves on as
// far as the executor of kernels allows. Not thread-safe: the runtime has one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "testing/cuda_stand_in/device_memory.h"
#include "testing/cuda_stand_in/launch.h"

namespace lockstep::cuda_stand_in {

struct Stream;
struct Capture;

// How much of each stream's captured work comes before.
using Progress = std::map<const Stream*, std::size_t>;

struct Event {
  bool timed = true;
  std::uint64_t recorded = 0;   // number of its records so far
  std::uint64_t completed = 0;  // the latest of them that was reached
  std::int64_t ns = 0;          // when it was
  std::uint64_t capture = 0;    // id of the capture of its latest record; 0 if that was not captured
  Progress before = {};         // that record, in its capture
};

struct KernelWork {
  Launch launch;
  bool early;  // programmatic: it may begin while the kernel before it runs
};
struct CopyWork {
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t size_bytes;
  std::shared_ptr<const std::vector<std::byte>> staged = {};  // contents of pageable memory at the call
};
struct FillWork {
  std::uintptr_t to;
  int value;
  std::size_t size_bytes;
};
struct RecordWork {
  std::shared_ptr<Event> event;
  std::uint64_t number;
};
struct WaitWork {
  std::shared_ptr<Event> event;
  std::uint64_t number;
};
using Work = std::variant<KernelWork, CopyWork, FillWork, RecordWork, WaitWork>;
using Graph = std::vector<Work>;  // in an order in which it may run

struct Capture {
  std::uint64_t id = 0;
  const Stream* origin = nullptr;
  std::thread::id begun_by = {};
  bool strict = false;  // not cudaStreamCaptureModeRelaxed
  bool broken = false;
  Graph work = {};
  std::map<Stream*, Progress> streams = {};  // those that take part, and what each has behind it
};

struct Stream {
  std::uint64_t id;
  int device;
  std::deque<Work> queue = {};
  std::vector<std::uint64_t> running = {};  // kernels; two if the second was launched early
  Capture* capture = nullptr;

  bool idle() const { return queue.empty() && running.empty(); }
};

class Streams {
 public:
  explicit Streams(DeviceMemory& memory) : memory_(memory) {}

  Stream& make(int device);
  void destroy(const void* handle);              // after its work is done
  Stream* find(const void* handle, int device);  // CUDA's NULL stream is made at its first use; nullptr: no such stream

  void add(Stream& stream, Work work);  // to its capture, if it is captured
  void record(Stream& stream, const std::shared_ptr<Event>& event, bool external);
  void wait(Stream& stream, const std::shared_ptr<Event>& event);
  void launch(Stream& stream, const Graph& graph);

  void begin_capture(Stream& stream, bool strict);
  Graph end_capture(Stream& stream);  // throws Refused if something was forbidden or not joined
  // This thread makes a call that may wait: refused, and its capture is broken, if it has begun a strict one.
  void check_no_capture(const char* call);
  void break_capture(Capture* capture, const char* call);  // throws Refused if there is a capture

  // Begins everything that can begin. Without an executor kernels end at once.
  void advance(Executor* executor);
  void kernel_ended(std::uint64_t number);
  bool any_running() const { return num_running_ > 0; }
  bool idle() const;
  void abandon();  // after a fault: forgets all work

  std::uint64_t num_launches() const { return num_launches_; }
  bool keeps_launches = false;
  std::vector<Launch> launches = {};  // kept ones

 private:
  void queue(Stream& stream, Work work);
  bool advance(Stream& stream, Executor* executor);
  bool begin(Stream& stream, KernelWork& work, Executor* executor);
  void run(const CopyWork& work, Executor* executor);
  void run(const FillWork& work, Executor* executor);

  DeviceMemory& memory_;
  std::map<const void*, std::unique_ptr<Stream>> streams_;
  std::map<int, Stream*> null_streams_;        // by device
  std::map<std::uint64_t, Capture> captures_;  // by their ids
  std::unordered_map<std::uint64_t, Stream*> stream_of_kernel_;
  std::size_t num_running_ = 0;
  std::uint64_t last_id_ = 0;  // streams and captures are numbered together
  std::uint64_t num_launches_ = 0;
};

}  // namespace lockstep::cuda_stand_in
