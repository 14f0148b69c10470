#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/top_k/top_k.h"
#include "kernels/top_k/top_k_reference.h"

namespace lockstep::kernels {
namespace {

void add(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t k, const std::string& length, float at = 0) {
  std::string shape = fmt::format("{}_k{}", length, k);
  if (at > 0) shape += fmt::format("_at{}", at);
  cases.push_back(make_case(TopK{.count = count, .k = k, .at = at}, {.shape = shape, .dtype = core::DType::f32}));
  if (at > 0) return;
  // Distinct indices spread over y.
  const auto spread = [count, k](ReferenceData<double>& data) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t index = i * count / k;
      data["indices"][static_cast<std::size_t>(i)] = static_cast<double>(index);
    }
  };
  cases.push_back(make_case(ScatterAdd{.count = count, .k = k},
                            {.shape = shape, .dtype = core::DType::f32, .terms = {{"y", 2}}, .derive = spread}));
}

}  // namespace

std::vector<KernelCase> top_k_test_cases() {
  std::vector<KernelCase> cases;
  for (const std::int64_t count : test_counts(core::DType::f32)) {
    add(cases, count, (count + 9) / 10, fmt::format("N{}", count));
  }
  add(cases, 40'000, 400, "N40000");  // enough for an estimate
  add(cases, 40'000, 40'000, "N40000");
  add(cases, 40'000, 400, "N40000", 3);
  add(cases, 4099, 1000, "N4099", 1);
  return cases;
}

std::vector<KernelCase> top_k_bench_cases() {
  std::vector<KernelCase> cases;
  constexpr std::int64_t kCount = std::int64_t{1} << 24;
  add(cases, kCount, kCount / 100, "N16M");
  add(cases, kCount, kCount / 1000, "N16M");
  return cases;
}

}  // namespace lockstep::kernels
