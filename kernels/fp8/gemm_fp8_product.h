// The product that a kernel's arguments describe, with its factors either as codes or decoded.
#pragma once

#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

// Decodes a factor; the caller sets the destination.
template <class Args>
Fp8Decode decode_of_a(const Args& args) {
  const Fp8Product& s = args.shape;
  return {.rows = s.m, .columns = s.k, .per = s.a_per, .from = s.a_type, .codes = args.a, .scales = args.a_scales};
}
template <class Args>
Fp8Decode decode_of_b(const Args& args) {
  const Fp8Product& s = args.shape;
  return {.rows = s.n, .columns = s.k, .per = s.b_per, .from = s.b_type, .codes = args.b, .scales = args.b_scales};
}

// a is [m, k] and b is [n, k], packed.
Product product_of(const GemmFp8& args, const In& a, const In& b);
Product product_of(const GemmFp8Add& args, const In& a, const In& b);  // the weights' only

}  // namespace lockstep::kernels
