#include "bench/kernels/step_cases.h"

#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/cases.h"
#include "kernels/copy/copy.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "kernels/swiglu/swiglu.h"
#include "workload/build_step.h"

namespace lockstep::kernel_bench {
namespace {

using kernels::case_of;
using kernels::KernelCase;

std::optional<KernelCase> case_of_call(const workload::KernelCall& call, const workload::Model& model,
                                       const workload::Layout& layout) {
  return std::visit(
      [&](const auto& args) -> std::optional<KernelCase> {
        using Args = std::decay_t<decltype(args)>;
        if constexpr (std::is_same_v<Args, workload::OtherKernel>) {
          return std::nullopt;
        } else if constexpr (std::is_same_v<Args, kernels::EmbeddingForward> ||
                             std::is_same_v<Args, kernels::EmbeddingBackward>) {
          return case_of(args, model.vocabulary);
        } else if constexpr (std::is_same_v<Args, kernels::CrossEntropyStats>) {
          return case_of(args, layout.tp);
        } else {
          return case_of(args);
        }
      },
      call.arguments);
}

}  // namespace

std::vector<KernelCase> cases_of_step(const workload::Model& model, const workload::Layout& layout) {
  std::vector<KernelCase> cases;
  std::set<std::string> names;
  // Pricing a step asks for the price of each of its kernels, which are collected here.
  const auto take = [&](const workload::KernelCall& call) -> std::int64_t {
    std::optional<KernelCase> one = case_of_call(call, model, layout);
    if (one && names.insert(one->name()).second) cases.push_back(std::move(*one));
    return 0;
  };
  works_of(model, layout, schedule_of(layout), {.kernel = take});
  return cases;
}

}  // namespace lockstep::kernel_bench
