// OpenBLAS' f32 products. Set OPENBLAS_CORETYPE: version 0.3.21 does not know newer processors.
#include <cblas.h>

#include "compare/peers/peers.h"

using namespace lockstep::peers;

int main(int argc, char** argv) {
  return gemm_peer(argc, argv, "openblas", [](const Product& p) -> Multiply {
    if (p.bf16) return {};
    const auto m = static_cast<blasint>(p.m);
    const auto n = static_cast<blasint>(p.n);
    const auto k = static_cast<blasint>(p.k);
    const float beta = p.accumulate ? 1.0F : 0.0F;
    return [=](const Operands& o) {
      cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans,
                  m, n, k, 1.0F, static_cast<const float*>(o.a), p.transpose_a ? m : k, static_cast<const float*>(o.b),
                  p.transpose_b ? k : n, beta, static_cast<float*>(o.c), n);
    };
  });
}
