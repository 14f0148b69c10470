#include "kernels/base/cuda_context.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernels {

void run_cuda(const GroupedGemmForward& args, CudaContext& cuda) {
  for (const GemmForward& group : groups_of(args)) run_cuda(group, cuda);
}

void run_cuda(const GroupedGemmInputGradient& args, CudaContext& cuda) {
  for (const GemmInputGradient& group : groups_of(args)) run_cuda(group, cuda);
}

void run_cuda(const GroupedGemmWeightGradient& args, CudaContext& cuda) {
  for (const GemmWeightGradient& group : groups_of(args)) run_cuda(group, cuda);
}

}  // namespace lockstep::kernels
