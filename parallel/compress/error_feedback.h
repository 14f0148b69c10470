// What compression has cut off, kept on the rank that did so and added to what it compresses next: nothing is lost, it
// comes later. Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel distributed
// training of speech DNNs", section 3; of the second rounding, of sums, too: Tang et al. 2019, arXiv:1905.05957.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// The errors of one vector.
class Residual {
 public:
  Residual(Memory& memory, std::int64_t elems);
  // residual = x + residual: what is to be compressed.
  kernels::In corrected(const kernels::In& x, const kernels::Context& where);
  // The first `elems` residuals less what was sent, piece by piece: sent(begin, count, to) writes elements [begin,
  // begin
  // + count) of what the others get. Pieces begin at whole blocks.
  using Sent = std::function<void(std::int64_t begin, std::int64_t count, const kernels::Out& to)>;
  void subtract(std::int64_t elems, const Sent& sent, const kernels::Context& where);
  void forget();

 private:
  Memory& memory_;
  Tensor errors_;
};

// Of one all-reduce; kept from call to call. Counted as optimizer state.
class ErrorFeedback {
 public:
  ErrorFeedback(Memory& memory, std::int64_t elems, int num_ranks);
  // After a step that was thrown away: an infinite gradient has left NaN.
  void forget();
  Residual& of_input() { return of_input_; }
  Residual& of_share() { return of_share_; }  // int8: of the sums that this rank quantises

 private:
  Residual of_input_;
  Residual of_share_;
};

}  // namespace lockstep::parallel
