#include "parallel/memory/memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::parallel {
namespace {

// Blocks of nearly the same size serve each other: sizes are rounded up to an eighth of their power of two.
std::size_t rounded(std::size_t size_bytes) {
  std::size_t power = 1024;
  while (power < size_bytes) power *= 2;
  const std::size_t grain = std::max<std::size_t>(power / 16, 128);
  return (size_bytes + grain - 1) / grain * grain;
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, kNumMemoryKinds> kNames{"weights", "gradients", "optimizer", "activations",
                                                                 "buffers"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int64_t total_of(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

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
  const auto k = static_cast<std::size_t>(kind);
  now_[k] += tensor.bytes();
  peak_of_each_[k] = std::max(peak_of_each_[k], now_[k]);
  if (total_of(now_) > total_of(at_peak_)) at_peak_ = now_;
  return tensor;
}

void* Memory::take(std::size_t size_bytes) {
  if (!device_.is_host_memory()) {
    return stream_ == nullptr ? device_.allocate(size_bytes) : device_.allocate_on(*stream_, size_bytes);
  }
  const std::size_t size = rounded(size_bytes);
  std::vector<void*>& kept = kept_[size];
  if (kept.empty()) return device_.allocate(size);
  void* const block = kept.back();
  kept.pop_back();
  return block;
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
  now_[static_cast<std::size_t>(tensor.kind_)] -= tensor.bytes();
  if (device_.is_host_memory()) {
    kept_[rounded(static_cast<std::size_t>(tensor.bytes()))].push_back(tensor.data_);
  } else if (stream_ != nullptr) {
    device_.release_on(*stream_, tensor.data_);
  } else {
    device_.release(tensor.data_);
  }
}

BytesByKind Memory::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

BytesByKind Memory::peak_of_each() const {
  const std::lock_guard lock(mutex_);
  return peak_of_each_;
}

BytesByKind Memory::at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

void Memory::restart_peaks() {
  const std::lock_guard lock(mutex_);
  peak_of_each_ = now_;
  at_peak_ = now_;
}

}  // namespace lockstep::parallel
