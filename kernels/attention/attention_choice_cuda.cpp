#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {
namespace {

struct Choice {
  explicit Choice(CudaContext& /*cuda*/) {}
  bool wgmma = false;
};

template <class Args>
std::string choice_of(const Args& args, const Context& where) {
  if (where.on_cpu()) return "";
  if (takes_wgmma(args, where.cuda())) return "wgmma";
  return args.q.dtype != core::DType::f32 && args.shape.head_columns <= 128 ? "mma" : "multiply-add";
}

bool has_the_shape(const AttentionShape& s, core::DType dtype) {
  return wgmma_takes(dtype, s.head_columns) && s.factor() > 0 && s.stride() % s.head_columns == 0 &&
         s.key_stride() % s.head_columns == 0;
}

}  // namespace

void choose_attention(CudaContext& cuda, const std::string& name) {
  if (const auto why = attention_refusal(name, cuda.compute_capability())) throw core::usage_error(*why);
  cuda.kept<Choice>().wgmma = name == "wgmma";
}

bool takes_wgmma(const AttentionForward& args, CudaContext& cuda) {
  return cuda.kept<Choice>().wgmma && has_the_shape(args.shape, args.q.dtype) && begin_at_multiples_of(16, args);
}

bool takes_wgmma(const AttentionBackward& args, CudaContext& cuda) {
  return cuda.kept<Choice>().wgmma && has_the_shape(args.shape, args.q.dtype) && begin_at_multiples_of(16, args);
}

std::string implementation_of(const AttentionForward& args, const Context& where) {
  return choice_of(args, where);
}

std::string implementation_of(const AttentionBackward& args, const Context& where) {
  return choice_of(args, where);
}

}  // namespace lockstep::kernels
