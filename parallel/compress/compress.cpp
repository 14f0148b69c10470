#include "parallel/compress/compress.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cast/cast.h"
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

void CompressionState::keep(const kernels::InOut& elements) {
  if (kept_.size() < to_restore_.size()) {
    const std::vector<float>& values = to_restore_[kept_.size()];
    LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == elements.elems,
                   "a reduction like the one that is restored");
    std::copy(values.begin(), values.end(), elements.as<float>());
  }
  kept_.push_back(elements);
}

namespace {

backends::Prepared prepare_plain(const GradientReduction& reduction, const PrepareCollective& prepare) {
  collectives::Operation operation;
  operation.count = reduction.elems;
  operation.op = reduction.op;
  operation.in_place = reduction.in_place;
  return prepare(operation, reduction.algorithm);
}

class Bf16AllReduce final : public collectives::Collective {
 public:
  Bf16AllReduce(const GradientReduction& reduction, std::unique_ptr<collectives::Collective> inner, Memory& memory,
                const kernels::Context& where)
      : elems_(reduction.elems),
        inner_(std::move(inner)),
        where_(where),
        narrow_(memory.make(MemoryKind::buffers, DType::bf16, elems_)) {}

  void run(const void* input, void* output) override {
    const kernels::In x{input, DType::f32, elems_};
    kernels::run(kernels::Cast{elems_, DType::f32, DType::bf16, 1, x, narrow_.out()}, where_);
    inner_->run(narrow_.data(), narrow_.data());
    const kernels::Out y{output, DType::f32, elems_};
    kernels::run(kernels::Cast{elems_, DType::bf16, DType::f32, 1, narrow_.in(), y}, where_);
  }

 private:
  const std::int64_t elems_;
  const std::unique_ptr<collectives::Collective> inner_;  // in place
  const kernels::Context where_;
  const Tensor narrow_;
};

backends::Prepared prepare_bf16(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where) {
  collectives::Operation operation;
  operation.count = reduction.elems;
  operation.dtype = DType::bf16;
  operation.op = reduction.op;
  operation.in_place = true;
  backends::Prepared prepared = prepare(operation, reduction.algorithm);
  prepared.collective = std::make_unique<Bf16AllReduce>(reduction, std::move(prepared.collective), memory, where);
  prepared.algorithm += "+bf16";
  return prepared;
}

}  // namespace

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
