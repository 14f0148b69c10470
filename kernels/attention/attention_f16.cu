#include "kernels/attention/attention_launch.cuh"

namespace lockstep::kernels {

template void run_attention<__half>(const AttentionForward& args, CudaContext& cuda);
template void run_attention<__half>(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
