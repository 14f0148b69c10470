// A tensor that a StateRoom copies from and to: whole blocks from an aligned address on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "workload/offload.h"

namespace lockstep::parallel {

struct StagedTensor {
  Tensor memory = {};
  void* data = nullptr;  // within the tensor
  std::int64_t elems = 0;

  bool given() const { return memory.given(); }
  void reset() {
    memory.reset();
    *this = {};
  }
  kernels::In in() const { return {data, memory.dtype(), elems}; }
  kernels::Out out() const { return {data, memory.dtype(), elems}; }
  kernels::InOut inout() const { return {data, memory.dtype(), elems}; }
};

// A tensor that is never copied that way.
inline StagedTensor unaligned(Tensor tensor) {
  StagedTensor made{.memory = std::move(tensor)};
  made.data = made.memory.data();
  made.elems = made.memory.elems();
  return made;
}

inline StagedTensor make_staged(Memory& memory, MemoryKind kind, core::DType dtype, std::int64_t elems) {
  constexpr auto kAlign = static_cast<std::uintptr_t>(workload::OffloadStaging::kAlign);
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(dtype));
  StagedTensor made{
      .memory = memory.make(kind, dtype, workload::OffloadStaging::staged_bytes(elem_bytes * elems) / elem_bytes),
      .elems = elems};
  const auto address = reinterpret_cast<std::uintptr_t>(made.memory.data());
  made.data = static_cast<std::byte*>(made.memory.data()) + ((address + kAlign - 1) / kAlign * kAlign - address);
  return made;
}

}  // namespace lockstep::parallel
