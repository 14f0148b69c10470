// Device memory from the host's side, in order with the kernels of a context.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// The stream in which the context's kernels are queued; nullptr on the CPU, where they are done when they return.
core::Stream* queue_of(const kernels::Context& where);

// All kernels of the context are done when it returns.
void finish(const kernels::Context& where);

// In the order of the context's kernels.
void set_zero(core::Device& device, const kernels::Context& where, const kernels::Out& what);
Tensor make_zeroed(Memory& memory, const kernels::Context& where, MemoryKind kind, core::DType dtype,
                   std::int64_t elems);

// to = values, rounded to its dtype (f32, bf16, f16) to nearest even. No kernel uses `to` meanwhile. Any thread may
// call it where the memory is the host's.
void write_rounded(core::Device& device, const kernels::Out& to, std::span<const float> values);

// Copies in the order of the context's kernels. Where those are queued, so are the copies, and `host` is page-locked
// memory (core/pinned_memory.h) that nobody touches until they are done.
void queue_to_device(core::Device& device, const kernels::Context& where, const kernels::Out& to, const void* host);
void queue_to_host(core::Device& device, const kernels::Context& where, void* host, const kernels::In& from);

// A number on the device.
Tensor make_scalar(Memory& memory, const kernels::Context& where, float value);

}  // namespace lockstep::parallel
