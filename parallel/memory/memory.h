// A rank's memory, counted by kind. Blocks come from the rank's Device, are kept when freed and handed out again,
// because a training step requests the same sizes again and again. Host memory is kept here, since nothing uses freed
// blocks; on other devices the device keeps it (core/device.h) and knows when queued work is done.
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

// Elements of one dtype on the device. Owns its memory and returns it to its Memory, which must outlive it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { reset(); }

  void reset();  // frees the memory; others get it once the work queued so far is done (Memory::work_on)
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

// Any thread of the rank may call it; if work is queued, only the thread that queues it.
class Memory {
 public:
  // `stream`: see work_on(). nullptr: tensors may be used on any of the device's streams; memory from make() is not in
  // use by any work, and the host may copy to it.
  explicit Memory(core::Device& device, core::Stream* stream = nullptr) : device_(device), stream_(stream) {}
  ~Memory();  // all tensors must have been freed
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Contents are undefined, the address is 128-byte aligned. Throws what Device::allocate throws.
  Tensor make(MemoryKind kind, core::DType dtype, std::int64_t elems);
  Tensor make_zeroed(MemoryKind kind, core::DType dtype, std::int64_t elems);

  // Limits all blocks together, in use and kept, to this many bytes from now on; 0, the default: no limit but the
  // device's. At the limit kept blocks are freed, and if that is not enough make() throws a usage Error that names
  // --device-memory.
  void set_budget(std::int64_t bytes) { budget_ = bytes; }

  // If work is queued: sets the stream of the current task. From now on tensors are allocated for work that is queued
  // on it next (earlier work may still use the memory), and freed after the work queued on it, whatever stream they
  // were allocated for. Both are correct if the task, through waits between streams, comes after every use of the
  // tensor, as it must anyway for the same tasks to be correct in threads.
  void work_on(core::Stream* stream) { stream_ = stream; }

  // Bytes that tensors hold: as requested, without rounding and kept blocks.
  BytesByKind now() const;
  BytesByKind peak_of_each() const;  // each kind's own peak
  BytesByKind at_peak() const;       // at the peak of all kinds together
  void restart_peaks();              // starts from what is held now

  // Counts the bytes held in the order of a list of tasks, regardless of which threads ran them and when: numbers that
  // do not depend on timing. After begin_tasks(), a thread calls these when it begins or ends a task; its allocations
  // and frees in between count as the task's, as if all tasks before it in the list were done and none after it begun.
  // Tasks are counted from 1; 0 is for a thread outside of tasks.
  void begin_tasks();
  void work_for(std::uint32_t task);
  workload::HeldBytes held_by_tasks() const;

  core::Device& device() { return device_; }

 private:
  friend class Tensor;
  void* take(std::size_t size_bytes);
  void make_room(std::size_t size_bytes);  // frees kept blocks to stay below the budget
  void give_back(const Tensor& tensor);

  core::Device& device_;
  core::Stream* stream_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> kept_;  // host memory, by rounded size
  workload::HeldBytes held_;
  std::int64_t budget_ = 0;
  std::int64_t taken_ = 0;  // bytes taken from the device while there is a budget

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
