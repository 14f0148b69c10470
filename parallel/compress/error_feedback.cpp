#include "parallel/compress/error_feedback.h"

#include <algorithm>

#include "kernels/cast/cast.h"
#include "kernels/residual/residual.h"
#include "parallel/compress/shares.h"

namespace lockstep::parallel {

using core::DType;

namespace {

constexpr std::int64_t kPieceElems = 64 * kCompressionBlock;  // stays in a core's cache

}  // namespace

Residual::Residual(Memory& memory, std::int64_t elems)
    : memory_(memory), errors_(memory.make_zeroed(MemoryKind::optimizer, DType::f32, elems)) {}

kernels::In Residual::corrected(const kernels::In& x, const kernels::Context& where) {
  kernels::run(kernels::ResidualAdd{x.elems, x, errors_.in(0, x.elems), errors_.out(0, x.elems)}, where);
  return errors_.in(0, x.elems);
}

void Residual::subtract(std::int64_t elems, const Sent& sent, const kernels::Context& where) {
  const Tensor piece = memory_.make(MemoryKind::buffers, DType::f32, std::min(kPieceElems, elems));
  const Tensor negative = memory_.make(MemoryKind::buffers, DType::f32, piece.elems());
  for (std::int64_t begin = 0; begin < elems; begin += kPieceElems) {
    const std::int64_t count = std::min(kPieceElems, elems - begin);
    sent(begin, count, piece.out(0, count));
    kernels::run(kernels::Cast{count, DType::f32, DType::f32, -1, piece.in(0, count), negative.out(0, count)}, where);
    kernels::run(
        kernels::ResidualAdd{count, errors_.in(begin, count), negative.in(0, count), errors_.out(begin, count)}, where);
  }
}

void Residual::forget() {
  const std::int64_t size = errors_.elems();
  errors_.reset();
  errors_ = memory_.make_zeroed(MemoryKind::optimizer, DType::f32, size);
}

ErrorFeedback::ErrorFeedback(Memory& memory, std::int64_t elems, int num_ranks)
    : of_input_(memory, elems), of_share_(memory, Shares(elems, num_ranks).share) {}

void ErrorFeedback::forget() {
  of_input_.forget();
  of_share_.forget();
}

}  // namespace lockstep::parallel
