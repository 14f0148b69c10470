#include "parallel/memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::parallel {
namespace {

// Rounds sizes up to an eighth of their power of two, so that blocks of nearly equal size can be reused for each other.
std::size_t rounded(std::size_t size_bytes) {
  std::size_t power = 1024;
  while (power < size_bytes) power *= 2;
  const std::size_t grain = std::max<std::size_t>(power / 16, 128);
  return (size_bytes + grain - 1) / grain * grain;
}

}  // namespace

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  memory_ = std::exchange(other.memory_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  dtype_ = other.dtype_;
  kind_ = other.kind_;
  elems_ = std::exchange(other.elems_, 0);
  return *this;
}

void Tensor::reset() {
  if (memory_ != nullptr) memory_->give_back(*this);
  memory_ = nullptr;
  data_ = nullptr;
  elems_ = 0;
}

Memory::~Memory() {
  for (const auto& [size, blocks] : kept_) {
    for (void* block : blocks) device_.release(block);
  }
}

Tensor Memory::make(MemoryKind kind, core::DType dtype, std::int64_t elems) {
  Tensor tensor;
  if (elems == 0) return tensor;
  tensor.dtype_ = dtype;
  tensor.kind_ = kind;
  const auto size = static_cast<std::size_t>(elems) * core::size_of(dtype);
  const std::lock_guard lock(mutex_);
  tensor.data_ = take(size);
  tensor.elems_ = elems;
  tensor.memory_ = this;
  change(kind, tensor.bytes());
  return tensor;
}

void* Memory::take(std::size_t size_bytes) {
  if (!device_.is_host_memory()) {
    make_room(size_bytes);
    return stream_ == nullptr ? device_.allocate(size_bytes) : device_.allocate_on(*stream_, size_bytes);
  }
  const std::size_t size = rounded(size_bytes);
  std::vector<void*>& kept = kept_[size];
  if (kept.empty()) {
    make_room(size);
    return device_.allocate(size);
  }
  void* const block = kept.back();
  kept.pop_back();
  return block;
}

void Memory::make_room(std::size_t size_bytes) {
  const auto size = static_cast<std::int64_t>(size_bytes);
  const auto fits = [&] { return budget_ == 0 || taken_ + size <= budget_; };
  for (auto blocks = kept_.rbegin(); blocks != kept_.rend() && !fits(); ++blocks) {
    while (!blocks->second.empty() && !fits()) {
      device_.release(blocks->second.back());
      blocks->second.pop_back();
      taken_ -= static_cast<std::int64_t>(blocks->first);
    }
  }
  if (!fits()) {
    throw core::usage_error(fmt::format(
        "--device-memory is {} bytes, tensors use {} of them, and {} more are needed; allowed: more memory, a smaller "
        "microbatch, recomputation, more ranks with --zero, or offloading",
        budget_, taken_, size));
  }
  taken_ += size;
}

Tensor Memory::make_zeroed(MemoryKind kind, core::DType dtype, std::int64_t elems) {
  Tensor tensor = make(kind, dtype, elems);
  const auto size = static_cast<std::size_t>(tensor.bytes());
  if (size == 0) return tensor;
  if (device_.is_host_memory()) {
    std::memset(tensor.data(), 0, size);
  } else if (stream_ != nullptr) {
    device_.zero_on(*stream_, tensor.data(), size);
  } else {
    const std::vector<std::byte> zeros(size);
    device_.copy_to_device(tensor.data(), zeros.data(), size);
  }
  return tensor;
}

void Memory::give_back(const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  change(tensor.kind_, -tensor.bytes());
  if (device_.is_host_memory()) {
    kept_[rounded(static_cast<std::size_t>(tensor.bytes()))].push_back(tensor.data_);
  } else if (stream_ != nullptr) {
    device_.release_on(*stream_, tensor.data_);
    taken_ -= tensor.bytes();
  } else {
    device_.release(tensor.data_);
    taken_ -= tensor.bytes();
  }
}

void Memory::change(MemoryKind kind, std::int64_t bytes) {
  held_.change(kind, bytes);
  const auto task = task_of_.find(std::this_thread::get_id());
  changes_.push_back({task == task_of_.end() ? 0 : task->second, kind, bytes});
}

BytesByKind Memory::now() const {
  const std::lock_guard lock(mutex_);
  return held_.now();
}

BytesByKind Memory::peak_of_each() const {
  const std::lock_guard lock(mutex_);
  return held_.peak_of_each();
}

BytesByKind Memory::at_peak() const {
  const std::lock_guard lock(mutex_);
  return held_.at_peak();
}

void Memory::restart_peaks() {
  const std::lock_guard lock(mutex_);
  held_ = workload::HeldBytes(held_.now());
}

void Memory::begin_tasks() {
  const std::lock_guard lock(mutex_);
  before_tasks_ = held_.now();
  changes_.clear();
  task_of_.clear();
}

void Memory::work_for(std::uint32_t task) {
  const std::lock_guard lock(mutex_);
  task_of_[std::this_thread::get_id()] = task;
}

workload::HeldBytes Memory::held_by_tasks() const {
  const std::lock_guard lock(mutex_);
  std::vector<Change> in_order = changes_;
  std::stable_sort(in_order.begin(), in_order.end(), [](const Change& a, const Change& b) { return a.task < b.task; });
  workload::HeldBytes held(before_tasks_);
  for (const Change& change : in_order) held.change(change.kind, change.bytes);
  return held;
}

}  // namespace lockstep::parallel
