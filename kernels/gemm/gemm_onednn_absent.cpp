// Replaces gemm_onednn.cpp in builds without oneDNN (CMake reports why): products run on our own kernels.
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

std::unique_ptr<GemmImplementation> make_onednn_gemm(int /*num_threads*/) {
  return nullptr;
}

}  // namespace lockstep::kernels
