#include <memory>
#include <utility>

#include "kernels/cast/cast.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

using core::DType;

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

}  // namespace

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

}  // namespace lockstep::parallel
