// A rank's memory, counted by what it holds. Blocks come from the rank's Device, are kept when they are given back, and
// are handed out again: a training step asks for the same sizes again and again. Memory of the host is kept here, as no
// work uses what is given back; on other devices the device keeps it (core/device.h), which knows when work is done.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "workload/memory_kinds.h"

namespace lockstep::parallel {

using workload::BytesByKind;
using workload::kNumMemoryKinds;
using workload::MemoryKind;
using workload::name_of;
using workload::total_of;

class Memory;

// Elements of one dtype on the device: owned, given back to the Memory that it came from, which must outlive it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { reset(); }

  void reset();  // gives the memory back: to others when the work that was queued so far is done (Memory::work_on)
  bool given() const { return elems_ != 0; }
  std::int64_t elems() const { return elems_; }
  core::DType dtype() const { return dtype_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(core::size_of(dtype_)) * elems_; }
  void* data() const { return data_; }

  kernels::In in() const { return {data_, dtype_, elems_}; }
  kernels::Out out() const { return {data_, dtype_, elems_}; }
  kernels::InOut inout() const { return {data_, dtype_, elems_}; }
  // Elements [begin, begin + count).
  kernels::In in(std::int64_t begin, std::int64_t count) const { return {at(begin), dtype_, count}; }
  kernels::Out out(std::int64_t begin, std::int64_t count) const { return {at(begin), dtype_, count}; }
  kernels::InOut inout(std::int64_t begin, std::int64_t count) const { return {at(begin), dtype_, count}; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  friend class Memory;
  std::byte* at(std::int64_t begin) const {
    return static_cast<std::byte*>(data_) + static_cast<std::int64_t>(core::size_of(dtype_)) * begin;
  }

  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  core::DType dtype_ = core::DType::f32;
  MemoryKind kind_ = MemoryKind::buffers;
  std::int64_t elems_ = 0;
};

// Called by any thread of the rank; where work is queued, by the one that queues it.
class Memory {
 public:
  // `stream`: as of work_on(). nullptr: tensors are used on any of the device's streams; what make() returns no work
  // uses any more, and the host may copy to it.
  explicit Memory(core::Device& device, core::Stream* stream = nullptr) : device_(device), stream_(stream) {}
  ~Memory();  // all tensors have been given back
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Its content is undefined, its address 128-byte aligned. Throws what Device::allocate throws.
  Tensor make(MemoryKind kind, core::DType dtype, std::int64_t elems);
  Tensor make_zeroed(MemoryKind kind, core::DType dtype, std::int64_t elems);

  // From now on all blocks together, in use and kept, may have so many bytes; 0, as at first: as many as the device
  // gives. Beyond it kept blocks are freed, and where that is not enough make() throws a usage Error that names
  // --device-memory.
  void set_budget(std::int64_t bytes) { budget_ = bytes; }

  // Where work is queued: the stream of the task at hand. From now on tensors are made for what is queued on it next
  // (work before may use the memory yet), and given back behind what has been queued on it, whatever stream they were
  // made for. Both are right for a task that comes, by waits between streams, after all that has used the tensor: as it
  // must, if the same tasks are to be right in threads.
  void work_on(core::Stream* stream) { stream_ = stream; }

  // Bytes that tensors hold: as asked for, without what rounding and kept blocks add.
  BytesByKind now() const;
  BytesByKind peak_of_each() const;  // each kind's own peak
  BytesByKind at_peak() const;       // when all kinds together were at their peak
  void restart_peaks();              // from what is held now

  // Bytes held in the order of a list of tasks, whatever threads ran them and when: numbers that do not depend on
  // timing. After begin_tasks() a thread that begins or ends a task says so; what it makes and gives back from then on
  // is the task's, and counts as if all tasks before it in the list were done, and none behind it begun. Tasks are
  // counted from 1; 0 is what a thread does that has named none.
  void begin_tasks();
  void work_for(std::uint32_t task);
  workload::HeldBytes held_by_tasks() const;

  core::Device& device() { return device_; }

 private:
  friend class Tensor;
  void* take(std::size_t size_bytes);
  void make_room(std::size_t size_bytes);  // below the budget
  void give_back(const Tensor& tensor);

  core::Device& device_;
  core::Stream* stream_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> kept_;  // memory of the host, by rounded size
  workload::HeldBytes held_;
  std::int64_t budget_ = 0;
  std::int64_t taken_ = 0;  // from the device, as long as there is a budget

  struct Change {
    std::uint32_t task = 0;
    MemoryKind kind = {};
    std::int64_t bytes = 0;
  };
  void change(MemoryKind kind, std::int64_t bytes);
  BytesByKind before_tasks_ = {};
  std::vector<Change> changes_;  // since begin_tasks()
  std::map<std::thread::id, std::uint32_t> task_of_;
};

}  // namespace lockstep::parallel
