// Replaces attention_choice_cuda.cpp in builds without CUDA.
#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"

namespace lockstep::kernels {

void choose_attention(CudaContext& /*cuda*/, const std::string& /*name*/) {
  throw core::Error(core::Failure::not_built, std::string("attention on CUDA: ") + LOCKSTEP_WHY_CUDA);
}

std::string implementation_of(const AttentionForward& /*args*/, const Context& /*where*/) {
  return "";
}

std::string implementation_of(const AttentionBackward& /*args*/, const Context& /*where*/) {
  return "";
}

}  // namespace lockstep::kernels
