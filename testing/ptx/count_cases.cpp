#include "testing/ptx/count_cases.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>

#include "core/device_cuda.h"
#include "kernels/attention/attention.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/cuda_context.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/registry.h"

namespace lockstep::ptx {
namespace {

using kernels::KernelCase;

constexpr double kMostFlops = 64e6;
constexpr double kMostFlopsOfTensorCores = 150e6;  // an instruction has thousands of them
constexpr double kMostBytes = 40e6;

// Operands are whole accesses of 16 bytes, but for single numbers and short lists of integers, such as groups' ends.
bool is_aligned(const KernelCase& kernel_case) {
  return std::all_of(kernel_case.operands.begin(), kernel_case.operands.end(), [](const auto& operand) {
    const bool is_list = operand.dtype == core::DType::i32 && operand.bytes() < 512;
    return operand.elems <= 1 || is_list || operand.bytes() % 16 == 0;
  });
}

// Attention and experts of 16 bits have kernels for tensor cores, with and without wgmma. Other products on a GPU are
// cuBLASLt's: ours, which take their place here, use no tensor cores.
bool has_tensor_cores(const KernelCase& kernel_case) {
  const bool is_ours = kernel_case.kernel == "attention_fwd" || kernel_case.kernel == "attention_bwd" ||
                       kernel_case.kernel.starts_with("grouped_gemm");
  return is_ours && kernels::size_bytes(kernel_case.dtype, 1) == 2;
}

bool is_small(const KernelCase& kernel_case) {
  return kernel_case.cost.flops <= (has_tensor_cores(kernel_case) ? kMostFlopsOfTensorCores : kMostFlops) &&
         kernel_case.cost.bytes <= kMostBytes;
}

double work_of(const KernelCase& kernel_case) {
  return kernel_case.cost.flops + kernel_case.cost.bytes;
}

constexpr std::uint64_t kInputs = 1;  // the seed draws schedules alone: what some kernels do depends on the inputs

std::string launch_once(const KernelCase& kernel_case, const std::string& choice) {
  const auto device = core::make_cuda_device(0, 0, std::chrono::hours(1));
  const auto stream = device->make_stream();
  kernels::CudaContext cuda(*device, *stream);
  if (!choice.empty()) {
    choose_attention(cuda, choice);
    choose_experts(cuda, choice == "mma" ? kernels::kExpertsChoices.front() : choice);
  }
  kernels::CaseMemory memory(*device, kernel_case);
  memory.fill(draw_inputs(kernel_case, kInputs));
  kernel_case.run(memory.pointers(), kernels::Context(cuda));
  stream->synchronize();
  return "";
}

// The case by which this kernel is counted; null if none is small and aligned.
const KernelCase* chosen(const std::vector<KernelCase>& bench, const std::vector<KernelCase>& test,
                         const std::string& kernel, core::DType dtype) {
  const KernelCase* best = nullptr;
  const auto consider = [&](const std::vector<KernelCase>& cases, const auto& is_better) {
    for (const KernelCase& one : cases) {
      if (one.kernel != kernel || one.dtype != dtype || !is_aligned(one) || !is_small(one)) continue;
      if (best == nullptr || is_better(work_of(one), work_of(*best))) best = &one;
    }
  };
  consider(bench, std::less<>());
  if (best == nullptr) consider(test, std::greater<>());
  return best;
}

void add_family(std::vector<CountCase>& cases, const kernels::KernelFamily& family) {
  const std::vector<KernelCase> bench = family.bench_cases();
  const std::vector<KernelCase> test = family.test_cases();
  std::vector<std::pair<std::string, core::DType>> kinds;
  for (const auto* of : {&bench, &test}) {
    for (const KernelCase& one : *of) {
      const std::pair kind{one.kernel, one.dtype};
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
  }
  for (const auto& [kernel, dtype] : kinds) {
    const KernelCase* const one = chosen(bench, test, kernel, dtype);
    if (one == nullptr) continue;
    const std::vector<std::string> all{"mma", "wgmma"};
    for (const std::string& choice : has_tensor_cores(*one) ? all : std::vector<std::string>{""}) {
      cases.push_back({.kernel_case = *one, .choice = choice, .device_case = {}});
      CountCase& added = cases.back();
      added.device_case.name = one->name() + (choice.empty() ? "" : "," + choice);
      added.device_case.most_elems = 0;
      added.device_case.run = [kernel_case = *one, choice](std::uint64_t) { return launch_once(kernel_case, choice); };
    }
  }
}

}  // namespace

std::vector<CountCase> count_cases() {
  std::vector<CountCase> cases;
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) add_family(cases, family);
  return cases;
}

}  // namespace lockstep::ptx
