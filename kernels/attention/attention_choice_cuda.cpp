#include <cuda_runtime_api.h>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {
namespace {

struct Choice {
  explicit Choice(CudaContext& cuda) {
    const core::CudaPlace place = cuda.place();
    const auto attribute = [&](cudaDeviceAttr which) {
      int value = 0;
      core::check_cuda(cudaDeviceGetAttribute(&value, which, place.device), "cudaDeviceGetAttribute", place);
      return value;
    };
    capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  }
  int capability = 0;
  bool wgmma = false;
};

// Returns whether each operand begins at a multiple of 16 bytes.
template <class Args>
bool are_whole_pieces(const Args& args) {
  bool are = true;
  Args::visit_operands(args, [&](std::string_view, const auto& view, std::int64_t, const DTypes&) {
    are = are && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  });
  return are;
}

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
  auto& choice = cuda.kept<Choice>();
  if (const auto why = attention_refusal(name, choice.capability)) throw core::usage_error(*why);
  choice.wgmma = name == "wgmma";
}

bool takes_wgmma(const AttentionForward& args, CudaContext& cuda) {
  return cuda.kept<Choice>().wgmma && has_the_shape(args.shape, args.q.dtype) && are_whole_pieces(args);
}

bool takes_wgmma(const AttentionBackward& args, CudaContext& cuda) {
  return cuda.kept<Choice>().wgmma && has_the_shape(args.shape, args.q.dtype) && are_whole_pieces(args);
}

std::string implementation_of(const AttentionForward& args, const Context& where) {
  return choice_of(args, where);
}

std::string implementation_of(const AttentionBackward& args, const Context& where) {
  return choice_of(args, where);
}

}  // namespace lockstep::kernels
