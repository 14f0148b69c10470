#include "parallel/parameters/device_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kPage = 4096;  // bytes

void copy_in(core::Device& device, void* to, const void* from, std::size_t size_bytes) {
  if (device.is_host_memory()) {
    std::memcpy(to, from, size_bytes);
  } else {
    device.copy_to_device(to, from, size_bytes);
  }
}

template <class Narrow, class Round>
void write_narrow(core::Device& device, void* to, std::span<const float> values, Round round) {
  std::vector<Narrow> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), round);
  copy_in(device, to, rounded.data(), rounded.size() * sizeof(Narrow));
}

}  // namespace

void finish(const kernels::Context& where) {
  if (core::Stream* const queue = queue_of(where); queue != nullptr) queue->synchronize();
}

void set_zero(core::Device& device, const kernels::Context& where, const kernels::Out& what) {
  const auto size_bytes = static_cast<std::int64_t>(kernels::size_bytes(what.dtype, what.elems));
  auto* const bytes = what.as<std::byte>();
  if (device.is_host_memory()) {
    where.pool().for_ranges(size_bytes, kPage, [bytes](std::int64_t begin, std::int64_t end) {
      std::memset(bytes + begin, 0, static_cast<std::size_t>(end - begin));
    });
    return;
  }
  if (core::Stream* const queue = queue_of(where); queue != nullptr) {
    device.zero_on(*queue, bytes, static_cast<std::size_t>(size_bytes));
    return;
  }
  const std::vector<std::byte> zeros(std::size_t{1} << 20);
  const auto piece = static_cast<std::int64_t>(zeros.size());
  for (std::int64_t begin = 0; begin < size_bytes; begin += piece) {
    device.copy_to_device(bytes + begin, zeros.data(), static_cast<std::size_t>(std::min(piece, size_bytes - begin)));
  }
}

Tensor make_zeroed(Memory& memory, const kernels::Context& where, MemoryKind kind, core::DType dtype,
                   std::int64_t elems) {
  Tensor tensor = memory.make(kind, dtype, elems);
  if (tensor.given()) set_zero(memory.device(), where, tensor.out());
  return tensor;
}

void write_rounded(core::Device& device, const kernels::Out& to, std::span<const float> values) {
  switch (to.dtype) {
    case core::DType::f32:
      return copy_in(device, to.data, values.data(), values.size_bytes());
    case core::DType::bf16:
      return write_narrow<core::BFloat16>(device, to.data, values, core::to_bfloat16);
    case core::DType::f16:
      return write_narrow<core::Float16>(device, to.data, values, core::to_float16);
    default:
      LOCKSTEP_CHECK(false, "weights are f32, bf16 or f16");
  }
}

void queue_to_device(core::Device& device, const kernels::Context& where, const kernels::Out& to, const void* host) {
  const std::size_t size_bytes = kernels::size_bytes(to.dtype, to.elems);
  core::Stream* const queue = queue_of(where);
  if (queue == nullptr) return device.copy_to_device(to.data, host, size_bytes);
  device.copy_on(*queue, to.data, host, size_bytes);
}

void queue_to_host(core::Device& device, const kernels::Context& where, void* host, const kernels::In& from) {
  const std::size_t size_bytes = kernels::size_bytes(from.dtype, from.elems);
  core::Stream* const queue = queue_of(where);
  if (queue == nullptr) return device.copy_to_host(host, from.data, size_bytes);
  device.copy_on(*queue, host, from.data, size_bytes);
}

Tensor make_scalar(Memory& memory, const kernels::Context& where, float value) {
  Tensor scalar = memory.make(MemoryKind::buffers, core::DType::f32, 1);
  finish(where);  // queued work may still use the memory
  copy_in(memory.device(), scalar.data(), &value, sizeof value);
  return scalar;
}

}  // namespace lockstep::parallel
