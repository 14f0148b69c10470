// Error feedback: the part of a rank's elements that has not been sent yet, which is added to the elements sent next.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "parallel/compress/compress.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

class ErrorFeedback {
 public:
  // [elems] f32 from `memory`, registered with `state`, which determines whether an error is pending. `state` and
  // `where`'s device must outlive this.
  ErrorFeedback(std::int64_t elems, CompressionState& state, Memory& memory, const kernels::Context& where);

  // Adds x [elems] to the pending error; the sum is to be sent now.
  void add(const kernels::In& x);
  const Tensor& owed() const { return owed_; }
  // Subtracts elements from `begin` on that were sent with `times` the values of `sent` [count].
  void take_off(std::int64_t begin, const kernels::In& sent, float times = 1);

 private:
  const CompressionState& state_;
  const kernels::Context where_;
  const Tensor owed_;
  const Tensor piece_;
};

}  // namespace lockstep::parallel
