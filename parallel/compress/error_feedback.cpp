#include "parallel/compress/error_feedback.h"

#include <algorithm>

#include "kernels/bucket/bucket.h"
#include "kernels/copy/copy.h"
#include "kernels/residual/residual.h"

namespace lockstep::parallel {
namespace {

using core::DType;

constexpr std::int64_t kPieceElems = 8192;  // fits a core's cache

}  // namespace

ErrorFeedback::ErrorFeedback(std::int64_t elems, CompressionState& state, Memory& memory, const kernels::Context& where)
    : state_(state),
      where_(where),
      owed_(memory.make(MemoryKind::buffers, DType::f32, elems)),
      piece_(memory.make(MemoryKind::buffers, DType::f32, std::min(elems, kPieceElems))) {
  state.keep(owed_.inout());
}

void ErrorFeedback::add(const kernels::In& x) {
  if (state_.calls == 0) {
    kernels::CopyRows first{1, x.elems};
    first.from = x;
    first.to = owed_.out(0, x.elems);
    return kernels::run(first, where_);
  }
  kernels::run(kernels::ResidualAdd{x.elems, owed_.in(0, x.elems), x, owed_.out(0, x.elems)}, where_);
}

void ErrorFeedback::take_off(std::int64_t begin, const kernels::In& sent, float times) {
  for (std::int64_t at = 0; at < sent.elems; at += kPieceElems) {
    const std::int64_t count = std::min(kPieceElems, sent.elems - at);
    const kernels::In part{sent.as<float>() + at, DType::f32, count};
    kernels::run(kernels::PackBucket{-times, {count}, {part}, piece_.out(0, count)}, where_);
    const kernels::ResidualAdd add{count, owed_.in(begin + at, count), piece_.in(0, count),
                                   owed_.out(begin + at, count)};
    kernels::run(add, where_);
  }
}

}  // namespace lockstep::parallel
