// Replaces FAMILY_choice_cuda.cpp of attention and of experts in builds without CUDA.
#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernels {
namespace {

[[noreturn]] void not_built(const char* what) {
  throw core::Error(core::Failure::not_built, std::string(what) + " on CUDA: " + LOCKSTEP_WHY_CUDA);
}

}  // namespace

void choose_attention(CudaContext& /*cuda*/, const std::string& /*name*/) {
  not_built("attention");
}
void choose_experts(CudaContext& /*cuda*/, const std::string& /*name*/) {
  not_built("experts");
}

// Nobody has chosen it.
bool takes_wgmma(const GroupedShape& /*shape*/, core::DType /*dtype*/, bool /*aligned*/, CudaContext& /*cuda*/) {
  return false;
}

std::string implementation_of(const AttentionForward& /*args*/, const Context& /*where*/) {
  return "";
}
std::string implementation_of(const AttentionBackward& /*args*/, const Context& /*where*/) {
  return "";
}
std::string implementation_of(const GroupedGemmForward& /*args*/, const Context& /*where*/) {
  return "";
}
std::string implementation_of(const GroupedGemmInputGradient& /*args*/, const Context& /*where*/) {
  return "";
}
std::string implementation_of(const GroupedGemmWeightGradient& /*args*/, const Context& /*where*/) {
  return "";
}

}  // namespace lockstep::kernels
