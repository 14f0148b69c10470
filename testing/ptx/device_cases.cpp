#include "testing/ptx/device_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "core/device_cuda.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_timing.h"
#include "kernels/base/kernel_case.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/registry.h"
#include "testing/collectives/cuda_cases.h"
#include "testing/cuda_stand_in/launch.h"
#include "testing/kernels/kernel_checks.h"
#include "testing/kernels/large_cases.h"
#include "testing/ptx/entry_cases.h"

namespace lockstep::ptx {
namespace {

using kernels::KernelCase;

// The interpreter is some ten thousand times slower than a GPU; who runs the case limits its time.
constexpr std::chrono::seconds kPatience{3600};

// Launchers decide by these, apart from the arguments.
struct Setting {
  std::string name = {};  // ends the case's name
  cuda_stand_in::DescribedGpu gpu = {};
  std::string attention = kernels::kAttentionChoices.front();
  std::string experts = kernels::kExpertsChoices.front();
};

// On one multiprocessor a block has many tiles.
constexpr cuda_stand_in::DescribedGpu kOneMultiprocessor{.multiprocessors = 1};
constexpr cuda_stand_in::DescribedGpu kWithoutClusters{.has_clusters = false};

std::string run_kernel(const KernelCase& kernel_case, const Setting& setting, int misalign_elems, std::uint64_t seed) {
  cuda_stand_in::describe(setting.gpu);
  const auto device = core::make_cuda_device(0, 0, kPatience);
  const auto stream = device->make_stream();
  kernels::CudaContext cuda(*device, *stream);
  choose_attention(cuda, setting.attention);
  choose_experts(cuda, setting.experts);
  const kernels::Context context(cuda);
  const kernels::CaseRunner runner{*device, context, [&] { stream->synchronize(); }};
  return result_errors(kernel_case, seed, runner, misalign_elems);
}

std::int64_t most_elems_of(const KernelCase& kernel_case) {
  std::int64_t most = 0;
  for (const auto& operand : kernel_case.operands) most = std::max(most, operand.elems);
  return most;
}

// The family of each kernel that has test cases.
std::map<std::string, std::string> families() {
  std::map<std::string, std::string> of_kernel;
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) {
    for (const KernelCase& one : family.test_cases()) of_kernel[one.kernel] = family.name;
  }
  return of_kernel;
}

void add_kernels(std::vector<DeviceCase>& cases, const std::map<std::string, std::string>& family_of,
                 const std::vector<KernelCase>& some, const Setting& setting = {}) {
  for (const KernelCase& one : some) {
    const std::string name =
        family_of.at(one.kernel) + "/" + one.name() + (setting.name.empty() ? "" : "," + setting.name);
    for (const int misalign_elems : {0, 1}) {
      cases.push_back({.name = name + (misalign_elems == 0 ? "" : ",shifted"),
                       .most_elems = most_elems_of(one),
                       .run = [=](std::uint64_t seed) { return run_kernel(one, setting, misalign_elems, seed); }});
    }
  }
}

void add_attention_and_experts(std::vector<DeviceCase>& cases, const std::map<std::string, std::string>& family_of) {
  const Setting mma{.name = "mma", .attention = "mma"};
  const Setting few{.name = "mma,1_multiprocessor", .gpu = kOneMultiprocessor, .attention = "mma"};
  const Setting wgmma{.name = "wgmma", .attention = "wgmma", .experts = "wgmma"};
  const Setting few_wgmma{
      .name = "wgmma,1_multiprocessor", .gpu = kOneMultiprocessor, .attention = "wgmma", .experts = "wgmma"};
  add_kernels(cases, family_of, kernels::attention_test_cases(), mma);
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    add_kernels(cases, family_of, attention_ring_cases(dtype), few);
    add_kernels(cases, family_of, attention_ring_cases(dtype), wgmma);
    add_kernels(cases, family_of, grouped_cases(dtype), wgmma);
    add_kernels(cases, family_of, grouped_cases(dtype), few_wgmma);
    add_kernels(cases, family_of, grouped_cases(dtype));
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
          fmt::format("collectives/{}_{}/{}/{}{}", name_of(one.algorithm->kind), one.algorithm->name,
                      core::short_name_of(one.dtype), core::name_of(one.op), packets ? ",packets" : "");
      cases.push_back({.name = name,
                       .most_elems = count,
                       .run = [=](std::uint64_t) { return run_collective(one, packets); },
                       .waits_for_others = true});
    }
  }
}

// --- Loops that only move memory, and the gate of a stream ---

class FloatsOnDevice {
 public:
  FloatsOnDevice(core::Device& device, std::vector<float> values)
      : device_(device), values_(std::move(values)), block_(device, bytes()) {
    device_.copy_to_device(block_.data(), values_.data(), bytes());
  }
  float* data() const { return reinterpret_cast<float*>(block_.data()); }
  const std::vector<float>& read() {
    device_.copy_to_host(values_.data(), block_.data(), bytes());
    return values_;
  }

 private:
  std::size_t bytes() const { return values_.size() * sizeof(float); }
  core::Device& device_;
  std::vector<float> values_;
  core::DeviceBlock block_;
};

// to = a + 2 b; the sums of what each block has read; both behind a gate.
std::string run_timing_loops(std::int64_t count) {
  const auto device = core::make_cuda_device(0, 0, kPatience);
  const auto stream = device->make_stream();
  kernels::CudaContext cuda(*device, *stream);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7);
  const FloatsOnDevice a(*device, numbers);
  const FloatsOnDevice b(*device, numbers);
  FloatsOnDevice to(*device, std::vector<float>(numbers.size()));
  FloatsOnDevice sums(*device, std::vector<float>(static_cast<std::size_t>(read_blocks(cuda, count))));
  kernels::StreamGate gate(cuda, kPatience);
  gate.close();
  triad_on_device(cuda, a.data(), b.data(), 2, to.data(), count);
  read_on_device(cuda, a.data(), count, sums.data());
  gate.open();
  stream->synchronize();
  double missing = 0;
  for (const float number : numbers) missing += number;
  for (const float sum : sums.read()) missing -= sum;
  const std::vector<float>& result = to.read();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (result[i] != 3 * numbers[i]) return fmt::format("element {} is {}, not {}", i, result[i], 3 * numbers[i]);
  }
  return missing == 0 ? "" : fmt::format("the sums lack {}", missing);
}

}  // namespace

std::vector<DeviceCase> device_cases(std::int64_t most_elems) {
  std::vector<DeviceCase> cases;
  const std::map<std::string, std::string> family_of = families();
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) {
    if (family.name != std::string_view("attention")) add_kernels(cases, family_of, family.test_cases());
  }
  add_attention_and_experts(cases, family_of);
  add_kernels(cases, family_of, kernels::large_cases());
  for (const core::DType dtype : kernels::kActivationDTypes) {
    add_kernels(cases, family_of, long_row_cases(dtype), {.name = "no_clusters", .gpu = kWithoutClusters});
    add_kernels(cases, family_of, many_row_cases(dtype), {.name = "1_multiprocessor", .gpu = kOneMultiprocessor});
  }
  add_kernels(cases, family_of, typed_cases());
  add_collectives(cases);
  for (const std::int64_t count : {4, 5000}) {
    cases.push_back({.name = fmt::format("timing/loops/f32/N{}", count),
                     .most_elems = count,
                     .run = [=](std::uint64_t) { return run_timing_loops(count); },
                     .waits_for_others = true});
  }
  std::erase_if(cases, [&](const DeviceCase& one) { return one.most_elems > most_elems; });
  return cases;
}

}  // namespace lockstep::ptx
