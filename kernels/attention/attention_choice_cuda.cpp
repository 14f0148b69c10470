#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {
namespace {

struct Choice {
  explicit Choice(CudaContext& cuda) : wgmma(!attention_refusal("wgmma", cuda.compute_capability())) {}
  bool wgmma;
};

template <class Args>
std::string choice_of(const Args& args, const Context& where) {
  if (where.on_cpu()) return "";
  const bool by_wgmma = takes_wgmma(args.shape, args.q.dtype, begin_at_multiples_of(16, args), where.cuda());
  return attention_kernels(by_wgmma ? "wgmma" : "mma", where.cuda().compute_capability(), args.q.dtype,
                           args.shape.head_columns);
}

}  // namespace

void choose_attention(CudaContext& cuda, const std::string& name) {
  if (const auto why = attention_refusal(name, cuda.compute_capability())) throw core::usage_error(*why);
  cuda.kept<Choice>().wgmma = name != "mma" && !attention_refusal("wgmma", cuda.compute_capability());
}

bool takes_wgmma(const AttentionShape& shape, core::DType dtype, bool aligned, CudaContext& cuda) {
  return cuda.kept<Choice>().wgmma && aligned && wgmma_takes(dtype, shape.head_columns) && shape.factor() > 0 &&
         shape.stride() % shape.head_columns == 0 && shape.key_stride() % shape.head_columns == 0;
}

std::string implementation_of(const AttentionForward& args, const Context& where) {
  return choice_of(args, where);
}

std::string implementation_of(const AttentionBackward& args, const Context& where) {
  return choice_of(args, where);
}

}  // namespace lockstep::kernels
