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

void CudaCombiner::combine(const Combination& combination) {
  if (combination.b == nullptr) {
    const auto bytes = static_cast<std::size_t>(combination.count) * core::size_of(combination.dtype);
    return kernels::copy_on_device(state_->cuda, combination.to, combination.a, bytes);
  }
  kernels::Reduction& reduction = state_->reduction;
  reduction.count = combination.count;
  reduction.dtype = combination.dtype;
  reduction.op = combination.op;
  reduction.average_over = combination.average_over;
  reduction.sources[0] = {.data = combination.a, .dtype = combination.dtype, .elems = combination.count};
  reduction.sources[1] = {.data = combination.b, .dtype = combination.dtype, .elems = combination.count};
  reduction.destination = {.data = combination.to, .dtype = combination.dtype, .elems = combination.count};
  kernels::run(reduction, kernels::Context(state_->cuda));
}

}  // namespace lockstep::executors
