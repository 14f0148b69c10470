#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernels {
namespace {

struct ExpertsChoice {
  explicit ExpertsChoice(CudaContext& /*cuda*/) {}
  bool wgmma = false;
};

template <class Args>
std::string choice_of(const Args& args, core::DType dtype, const Context& where) {
  if (where.on_cpu()) return "";
  const bool aligned = begin_at_multiples_of(16, args);
  return takes_wgmma(args.shape, dtype, aligned, where.cuda()) ? "wgmma" : kExpertsChoices.front();
}

}  // namespace

void choose_experts(CudaContext& cuda, const std::string& name) {
  if (name == "wgmma") {
    if (const auto why = wgmma_refusal("experts", cuda.compute_capability(), kExpertsChoices.front())) {
      throw core::usage_error(*why);
    }
  }
  cuda.kept<ExpertsChoice>().wgmma = name == "wgmma";
}

bool takes_wgmma(const GroupedShape& shape, core::DType dtype, bool aligned, CudaContext& cuda) {
  constexpr std::int64_t kPiece = 8;  // the copy engine takes rows of whole 16 bytes
  return cuda.kept<ExpertsChoice>().wgmma && aligned && (dtype == core::DType::bf16 || dtype == core::DType::f16) &&
         shape.inputs % kPiece == 0 && shape.outputs % kPiece == 0;
}

std::string implementation_of(const GroupedGemmForward& args, const Context& where) {
  return choice_of(args, args.x.dtype, where);
}
std::string implementation_of(const GroupedGemmInputGradient& args, const Context& where) {
  return choice_of(args, args.dy.dtype, where);
}
std::string implementation_of(const GroupedGemmWeightGradient& args, const Context& where) {
  return choice_of(args, args.x.dtype, where);
}

}  // namespace lockstep::kernels
