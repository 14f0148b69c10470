#include "testing/ptx/device_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/device_cuda.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/registry.h"
#include "testing/kernels/attention_shapes.h"
#include "testing/kernels/kernel_checks.h"
#include "testing/kernels/large_cases.h"

namespace lockstep::ptx {
namespace {

using kernels::KernelCase;

// Groups that are empty, end within a tile, fill one, or need several; more groups than a launch takes.
std::vector<KernelCase> grouped_cases(core::DType dtype) {
  using kernels::GroupedShape;
  const std::vector<std::pair<const char*, GroupedShape>> shapes{
      {"ragged", {{0, 130, 0, 70, 1}, 72, 136}},
      {"tails", {{64, 129}, 136, 264}},
      {"many_groups", {std::vector<std::int64_t>(70, 33), 64, 64}},
  };
  std::vector<KernelCase> cases;
  for (const auto& [name, shape] : shapes) {
    using kernels::Epilogue;
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
      cases.push_back(case_of(shaped(kernels::GroupedGemmForward{.shape = shape, .epilogue = epilogue}, dtype), name));
    }
    for (const bool flag : {false, true}) {
      const kernels::GroupedGemmInputGradient input{.shape = shape, .through_gelu = flag};
      const kernels::GroupedGemmWeightGradient weight{.shape = shape, .with_bias = flag};
      cases.push_back(case_of(shaped(input, dtype), name));
      cases.push_back(case_of(shaped(weight, dtype), name));
    }
  }
  return cases;
}

std::vector<KernelCase> wgmma_cases(core::DType dtype) {
  std::vector<KernelCase> cases = grouped_cases(dtype);
  for (const kernels::AttentionShape& shape : kernels::kAttentionWgmmaShapes) {
    cases.push_back(case_of(shaped(kernels::AttentionForward{.shape = shape}, dtype)));
    cases.push_back(case_of(shaped(kernels::AttentionBackward{.shape = shape}, dtype)));
  }
  return cases;
}

bool is_small(const KernelCase& kernel_case, std::int64_t most_elems) {
  return std::all_of(kernel_case.operands.begin(), kernel_case.operands.end(),
                     [&](const auto& operand) { return operand.elems <= most_elems; });
}

}  // namespace

std::vector<DeviceCase> device_cases(std::int64_t most_elems) {
  std::vector<DeviceCase> cases;
  const auto add = [&](const std::string& family, const std::vector<KernelCase>& some, const std::string& products) {
    for (const KernelCase& one : some) {
      if (!is_small(one, most_elems)) continue;
      const std::string name = family + "/" + one.name() + (products.empty() ? "" : "," + products);
      cases.push_back({name, one, products});
      cases.push_back({name + ",shifted", one, products, 1});
    }
  };
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) add(family.name, family.test_cases(), "");
  add("large", kernels::large_cases(), "");
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    add("wgmma", wgmma_cases(dtype), "wgmma");
    add("moe", grouped_cases(dtype), "");
  }
  return cases;
}

// The interpreter is some ten thousand times slower than a GPU; who runs the case limits its time.
constexpr std::chrono::seconds kPatience{3600};

std::string run_case(const DeviceCase& device_case, std::uint64_t seed) {
  try {
    const auto device = core::make_cuda_device(0, 0, kPatience);
    const auto stream = device->make_stream();
    kernels::CudaContext cuda(*device, *stream);
    if (!device_case.products.empty()) {
      choose_attention(cuda, device_case.products);
      choose_experts(cuda, device_case.products);
    }
    const kernels::Context context(cuda);
    const kernels::CaseRunner runner{*device, context, [&] { stream->synchronize(); }};
    return result_errors(device_case.kernel_case, seed, runner, device_case.misalign_elems);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace lockstep::ptx
