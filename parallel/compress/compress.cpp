#include "parallel/compress/compress.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

backends::Prepared prepare_plain(const GradientReduction& reduction, const PrepareCollective& prepare) {
  collectives::Operation operation;
  operation.count = reduction.elems;
  operation.op = reduction.op;
  operation.in_place = reduction.in_place;
  return prepare(operation, reduction.algorithm);
}

}  // namespace

void CompressionState::keep(const kernels::InOut& elements) {
  if (kept_.size() < to_restore_.size()) {
    const std::vector<float>& values = to_restore_[kept_.size()];
    LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == elements.elems,
                   "a reduction like the one that is restored");
    std::copy(values.begin(), values.end(), elements.as<float>());
  }
  kept_.push_back(elements);
}

backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where) {
  LOCKSTEP_CHECK(reduction.op == core::ReduceOp::sum || reduction.op == core::ReduceOp::avg, "gradients are added");
  LOCKSTEP_CHECK(reduction.elems > 0, "nothing to reduce");
  LOCKSTEP_CHECK(reduction.state != nullptr || !reduction.compression.remembers(), "a state for error feedback");
  if (reduction.num_ranks == 1) return prepare_plain(reduction, prepare);  // sends nothing and loses nothing
  switch (reduction.compression.way) {
    case CompressionWay::none:
      return prepare_plain(reduction, prepare);
    case CompressionWay::bf16:
      return prepare_bf16(reduction, prepare, memory, where);
    case CompressionWay::topk:
    case CompressionWay::threshold:
      return prepare_sparse(reduction, prepare, memory, where);
    case CompressionWay::randomk:
      return prepare_random(reduction, prepare, memory, where);
    case CompressionWay::powersgd:
      return prepare_low_rank(reduction, prepare, memory, where);
    default:
      return prepare_codes(reduction, prepare, memory, where);
  }
}

}  // namespace lockstep::parallel
