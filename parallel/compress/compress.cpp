#include "parallel/compress/compress.h"

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

backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where) {
  LOCKSTEP_CHECK(reduction.op == core::ReduceOp::sum || reduction.op == core::ReduceOp::avg, "gradients are added");
  LOCKSTEP_CHECK(reduction.elems > 0, "nothing to reduce");
  LOCKSTEP_CHECK(reduction.state != nullptr || !reduction.compression.remembers(), "a state to remember by");
  if (reduction.num_ranks == 1) return prepare_plain(reduction, prepare);  // sends nothing, and loses nothing
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
