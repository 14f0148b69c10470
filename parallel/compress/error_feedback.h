// What a rank owes: elements that it was to send and has not sent, which it adds to those that it sends next.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "parallel/compress/compress.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

class ErrorFeedback {
 public:
  // [elems] f32 of `memory`, which `state` keeps. It tells whether something is owed; it, and `where`'s device, outlive
  // this.
  ErrorFeedback(std::int64_t elems, CompressionState& state, Memory& memory, const kernels::Context& where);

  // Adds x [elems] to what is owed; that is to be sent now.
  void add(const kernels::In& x);
  const Tensor& owed() const { return owed_; }
  // Elements from `begin` on were sent, `times` as large as `sent` [count] says.
  void take_off(std::int64_t begin, const kernels::In& sent, float times = 1);

 private:
  const CompressionState& state_;
  const kernels::Context where_;
  const Tensor owed_;
  const Tensor piece_;
};

}  // namespace lockstep::parallel
