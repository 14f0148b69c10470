#include "kernels/attention/attention_launch.cuh"

namespace lockstep::kernels {

template void run_attention<float>(const AttentionForward& args, CudaContext& cuda);
template void run_attention<float>(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
