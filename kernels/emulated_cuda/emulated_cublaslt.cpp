// No cuBLASLt on the emulated device: products, finishes and all are left to our own kernels.
#include "kernels/gemm/gemm_cublaslt.h"

namespace lockstep::kernels {

struct CublasltGemm::State {};

CublasltGemm::CublasltGemm(CudaContext& /*cuda*/) {}
CublasltGemm::~CublasltGemm() = default;

bool CublasltGemm::run(const Product& /*product*/, void* /*workspace*/) {
  return false;
}

}  // namespace lockstep::kernels
