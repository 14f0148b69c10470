#include "testing/ptx/device_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/device_cuda.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/kernel_case.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/registry.h"
#include "testing/collectives/cuda_cases.h"
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

// The interpreter is some ten thousand times slower than a GPU; who runs the case limits its time.
constexpr std::chrono::seconds kPatience{3600};

// `products`: how attention and experts multiply; empty: as by default. `misalign_elems`: of every operand.
std::string run_kernel(const KernelCase& kernel_case, const std::string& products, int misalign_elems,
                       std::uint64_t seed) {
  const auto device = core::make_cuda_device(0, 0, kPatience);
  const auto stream = device->make_stream();
  kernels::CudaContext cuda(*device, *stream);
  if (!products.empty()) {
    choose_attention(cuda, products);
    choose_experts(cuda, products);
  }
  const kernels::Context context(cuda);
  const kernels::CaseRunner runner{*device, context, [&] { stream->synchronize(); }};
  return result_errors(kernel_case, seed, runner, misalign_elems);
}

std::int64_t most_elems_of(const KernelCase& kernel_case) {
  std::int64_t most = 0;
  for (const auto& operand : kernel_case.operands) most = std::max(most, operand.elems);
  return most;
}

void add_kernels(std::vector<DeviceCase>& cases, const std::string& family, const std::vector<KernelCase>& some,
                 const std::string& products) {
  for (const KernelCase& one : some) {
    const std::string name = family + "/" + one.name() + (products.empty() ? "" : "," + products);
    for (const int misalign_elems : {0, 1}) {
      cases.push_back({.name = name + (misalign_elems == 0 ? "" : ",shifted"),
                       .most_elems = most_elems_of(one),
                       .run = [=](std::uint64_t seed) { return run_kernel(one, products, misalign_elems, seed); }});
    }
  }
}

// Ranks that are threads of this process and share the device: two blocks each, which wait for those of other ranks.
std::string run_collective(const executors::Case& one, bool packets) {
  executors::CudaOptions options{.timeout = kPatience, .most_blocks = 2, .threads = 64};
  options.packets_only = packets;
  options.packets_below_bytes = packets ? std::int64_t{1} << 40 : 0;
  options.stage_below_bytes = 0;
  constexpr int kRanks = 3;
  const executors::MakeRank make_rank = [](executors::LocalWorld& world, const executors::CudaOptions& its) {
    return executors::test_rank_on(core::make_cuda_device(0, world.rank(), kPatience), world, its);
  };
  return run_cases_on(kRanks, make_rank, {one}, options);
}

void add_collectives(std::vector<DeviceCase>& cases) {
  for (const bool packets : {false, true}) {
    const std::int64_t count = packets ? 77 : 333;
    for (const executors::Case& one : executors::all_types_and_operations(count)) {
      const std::string name =
          fmt::format("collectives/{}/{}/{}/{}{}", name_of(one.algorithm->kind), one.algorithm->name,
                      core::short_name_of(one.dtype), core::name_of(one.op), packets ? ",packets" : "");
      cases.push_back(
          {.name = name, .most_elems = count, .run = [=](std::uint64_t) { return run_collective(one, packets); }});
    }
  }
}

}  // namespace

std::vector<DeviceCase> device_cases(std::int64_t most_elems) {
  std::vector<DeviceCase> cases;
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) {
    add_kernels(cases, family.name, family.test_cases(), "");
  }
  add_kernels(cases, "large", kernels::large_cases(), "");
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    add_kernels(cases, "wgmma", wgmma_cases(dtype), "wgmma");
    add_kernels(cases, "moe", grouped_cases(dtype), "");
  }
  add_collectives(cases);
  std::erase_if(cases, [&](const DeviceCase& one) { return one.most_elems > most_elems; });
  return cases;
}

}  // namespace lockstep::ptx
