#include "collectives/executors/executors.h"

#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/reduce/reduction.h"

namespace lockstep::executors {

struct CudaCombiner::State {
  State(core::Device& device, core::Stream& stream, int rank) : cuda(device, stream, rank) {}
  kernels::CudaContext cuda;
  kernels::Reduction reduction{.count = 1, .num_sources = 2, .dtype = core::DType::f32, .sources = {{}, {}}};
};

CudaCombiner::CudaCombiner(core::Device& device, core::Stream& stream, int rank)
    : state_(std::make_unique<State>(device, stream, rank)) {}

CudaCombiner::~CudaCombiner() = default;

void CudaCombiner::combine(const Combination& one) {
  if (one.b == nullptr) {
    const auto bytes = static_cast<std::size_t>(one.count) * core::size_of(one.dtype);
    return kernels::copy_on_device(state_->cuda, one.to, one.a, bytes);
  }
  kernels::Reduction& reduction = state_->reduction;
  reduction.count = one.count;
  reduction.dtype = one.dtype;
  reduction.op = one.op;
  reduction.average_over = one.average_over;
  reduction.sources[0] = {.data = one.a, .dtype = one.dtype, .elems = one.count};
  reduction.sources[1] = {.data = one.b, .dtype = one.dtype, .elems = one.count};
  reduction.destination = {.data = one.to, .dtype = one.dtype, .elems = one.count};
  kernels::run(reduction, kernels::Context(state_->cuda));
}

}  // namespace lockstep::executors
