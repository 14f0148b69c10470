// Access to device memory from the host, in order with the kernels of a context.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// The stream in which the context's kernels are queued; nullptr on the CPU, where kernels are synchronous.
core::Stream* queue_of(const kernels::Context& where);

// Returns once all kernels of the context are done.
void finish(const kernels::Context& where);

// Sets to zero in order with the context's kernels.
void set_zero(core::Device& device, const kernels::Context& where, const kernels::Out& what);
Tensor make_zeroed(Memory& memory, const kernels::Context& where, MemoryKind kind, core::DType dtype,
                   std::int64_t elems);

// to = values, rounded to its dtype (f32, bf16, f16) to nearest even. No kernel may use `to` meanwhile. Any thread may
// call it if the memory is host memory.
void write_rounded(core::Device& device, const kernels::Out& to, std::span<const float> values);

// Copies in order with the context's kernels. If those are queued, the copies are queued as well, and `host` must be
// page-locked memory (core/pinned_memory.h) that is not touched until they are done.
void queue_to_device(core::Device& device, const kernels::Context& where, const kernels::Out& to, const void* host);
void queue_to_host(core::Device& device, const kernels::Context& where, void* host, const kernels::In& from);

// A number in device memory.
Tensor make_scalar(Memory& memory, const kernels::Context& where, float value);

}  // namespace lockstep::parallel
