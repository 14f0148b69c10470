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
bool takes(const Args& args, core::DType dtype, CudaContext& cuda) {
  constexpr std::int64_t kPiece = 8;  // the copy engine takes rows of whole 16 bytes
  const GroupedShape& s = args.shape;
  return cuda.kept<ExpertsChoice>().wgmma && (dtype == core::DType::bf16 || dtype == core::DType::f16) &&
         s.inputs % kPiece == 0 && s.outputs % kPiece == 0 && begin_at_multiples_of(16, args);
}

template <class Args>
std::string choice_of(const Args& args, const Context& where) {
  if (where.on_cpu()) return "";
  return takes_wgmma(args, where.cuda()) ? "wgmma" : kExpertsChoices.front();
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

bool takes_wgmma(const GroupedGemmForward& args, CudaContext& cuda) {
  return takes(args, args.x.dtype, cuda);
}
bool takes_wgmma(const GroupedGemmInputGradient& args, CudaContext& cuda) {
  return takes(args, args.dy.dtype, cuda);
}
bool takes_wgmma(const GroupedGemmWeightGradient& args, CudaContext& cuda) {
  return takes(args, args.x.dtype, cuda);
}

std::string implementation_of(const GroupedGemmForward& args, const Context& where) {
  return choice_of(args, where);
}
std::string implementation_of(const GroupedGemmInputGradient& args, const Context& where) {
  return choice_of(args, where);
}
std::string implementation_of(const GroupedGemmWeightGradient& args, const Context& where) {
  return choice_of(args, where);
}

}  // namespace lockstep::kernels
