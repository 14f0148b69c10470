// A call of a kernel in a step: arguments with shapes and dtypes, but without data. Its cost is the kernel's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/dtype.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/operands.h"
#include "kernels/copy/copy.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::workload {

// The class of a kernel, which selects the share of a device's peak at which it is priced.
enum class KernelClass : std::uint8_t { product, attention, pass };

// A kernel that other frameworks launch and this library does not have.
struct OtherKernel {
  KernelClass of = KernelClass::pass;
  core::DType dtype = core::DType::bf16;
  double flops = 0;
  double bytes = 0;  // to and from memory
};

struct KernelCall {
  using Arguments =
      std::variant<OtherKernel, kernels::GemmForward, kernels::GemmInputGradient, kernels::GemmWeightGradient,
                   kernels::AttentionForward, kernels::AttentionBackward, kernels::AttentionMerge, kernels::CopyRows,
                   kernels::NormForward, kernels::NormBackward, kernels::GeluForward, kernels::GeluBackward,
                   kernels::SwigluForward, kernels::SwigluBackward, kernels::Rotary, kernels::ResidualAdd,
                   kernels::EmbeddingForward, kernels::EmbeddingBackward, kernels::CrossEntropy,
                   kernels::CrossEntropyStats, kernels::CrossEntropyFinish, kernels::SumOfSquares, kernels::AdamW,
                   kernels::Fp8Encode, kernels::GemmFp8, kernels::GemmFp8Add>;
  Arguments arguments;
  double count = 1;  // number of such calls, one after the other
};

// A matrix product, [m, k] by [k, n].
struct Product {
  double m = 0;
  double n = 0;
  double k = 0;
  double flops() const { return 2 * m * n * k; }
};

// Makes arguments with the views' lengths and dtypes filled in (kernels::shaped).
template <class Args>
KernelCall kernel_call(Args args, core::DType dtype, double count = 1) {
  return {kernels::shaped(std::move(args), dtype), count};
}

// A text that is equal for calls of equal cost: the kernel, dtype and bytes of each operand in order, and the FLOPs
// (attention over other lengths may have operands of equal bytes), "gemm_fwd f32:1048576 f32:786432 f32:3145728
// flops:402653184". Empty for OtherKernel.
std::string signature_of(const KernelCall& call);

KernelClass class_of(const KernelCall& call);
core::DType dtype_of(const KernelCall& call);
kernels::Cost cost_of(const KernelCall& call);              // cost of one of `count` calls
std::optional<Product> product_of(const KernelCall& call);  // empty if it is not a product, or one without a shape
// FLOPs done by matrix units: two per multiply-add of products, all of attention; of one of `count` calls.
double matrix_flops_of(const KernelCall& call);

}  // namespace lockstep::workload
