// Reference: plain loops, for tests.
#include "kernels/registry.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/reference_data.h"
#include "kernels/top_k/top_k.h"

namespace lockstep::kernels {

template <class S>
void reference(const TopK& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto size_of = [&](std::size_t i) {
    if constexpr (std::is_same_v<S, double>) {
      return std::fabs(x[i]);
    } else {
      return std::fabs(x[i].value());
    }
  };
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size_of(a) > size_of(b); });
  order.resize(static_cast<std::size_t>(args.k));
  std::erase_if(order, [&](std::size_t i) { return size_of(i) < static_cast<double>(args.at); });
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < data["values"].size(); ++i) {
    data["values"][i] = i < order.size() ? x[order[i]] : S(0.0);
    data["indices"][i] = S(i < order.size() ? static_cast<double>(order[i]) : -1.0);
  }
}

template <class S>
void reference(const ScatterAdd& /*args*/, ReferenceData<S>& data) {
  for (std::size_t i = 0; i < data["values"].size(); ++i) {
    int to = 0;
    if constexpr (std::is_same_v<S, double>) {
      to = static_cast<int>(data["indices"][i]);
    } else {
      to = static_cast<int>(data["indices"][i].value());
    }
    if (to >= 0) data["y"][static_cast<std::size_t>(to)] += data["values"][i];
  }
}

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
