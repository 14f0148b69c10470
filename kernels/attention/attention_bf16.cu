#include "kernels/attention/attention_launch.cuh"

namespace lockstep::kernels {

template void run_attention<__nv_bfloat16>(const AttentionForward& args, CudaContext& cuda);
template void run_attention<__nv_bfloat16>(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
