// Cases of signs and of the largest elements, with their references: plain loops, for tests.
#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/compress/compress.h"

namespace lockstep::kernels {

template <class S>
void reference(const EncodeSigns& args, ReferenceData<S>& data) {
  using std::abs;
  const auto x = data["x"];
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  for (std::size_t byte = 0; byte < codes.size(); ++byte) {
    int bits = 0;
    for (std::size_t i = 8 * byte; i < std::min(x.size(), 8 * byte + 8); ++i) {
      if (std::signbit(value_of(x[i]))) bits |= 1 << i % 8;
    }
    codes[byte] = S(static_cast<double>(bits));
  }
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::size_t begin = block * static_cast<std::size_t>(args.block);
    const std::size_t end = std::min(x.size(), begin + static_cast<std::size_t>(args.block));
    S sum = abs(x[begin]);
    for (std::size_t i = begin + 1; i < end; ++i) sum += abs(x[i]);
    scales[block] = sum / S(static_cast<double>(end - begin));
  }
}

template <class S>
void reference(const DecodeSigns& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) {
    const S scale = scales[i / static_cast<std::size_t>(args.block)];
    const bool negative = (integer_of(codes[i / 8]) >> i % 8 & 1) != 0;
    y[i] = negative ? -scale : scale;
  }
}

namespace {

void add_signs(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t block, const std::string& length) {
  const std::string shape = fmt::format("{}_b{}", length, block);
  cases.push_back(make_case(EncodeSigns{.count = count, .block = block},
                            {.shape = shape, .dtype = core::DType::f32, .terms = {{"scales", block}}}));
  cases.push_back(make_case(DecodeSigns{.count = count, .block = block},
                            {.shape = shape,
                             .dtype = core::DType::f32,
                             .draws = {{"codes", {.kind = Draw::Kind::index, .below = 256}},
                                       {"scales", {.kind = Draw::Kind::positive, .scale = 0.01}}}}));
}

}  // namespace

template <class S>
void reference(const TopK& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto size_of = [&](std::size_t i) { return std::fabs(value_of(x[i])); };
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
    const std::int64_t to = integer_of(data["indices"][i]);
    if (to >= 0) data["y"][static_cast<std::size_t>(to)] += data["values"][i];
  }
}

namespace {

void add_top_k(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t k, const std::string& length,
               float at = 0) {
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

std::vector<KernelCase> compress_test_cases() {
  std::vector<KernelCase> cases;
  for (std::int64_t count : test_counts(core::DType::f32)) add_signs(cases, count, 256, fmt::format("N{}", count));
  for (std::int64_t block : {8, 24, 1000}) add_signs(cases, 4099, block, "N4099");
  for (const std::int64_t count : test_counts(core::DType::f32)) {
    add_top_k(cases, count, (count + 9) / 10, fmt::format("N{}", count));
  }
  add_top_k(cases, 40'000, 400, "N40000");  // enough for an estimate
  add_top_k(cases, 40'000, 40'000, "N40000");
  add_top_k(cases, 40'000, 400, "N40000", 3);
  add_top_k(cases, 4099, 1000, "N4099", 1);
  return cases;
}

std::vector<KernelCase> compress_bench_cases() {
  std::vector<KernelCase> cases;
  add_signs(cases, std::int64_t{1} << 16, 256, "N64K");
  add_signs(cases, std::int64_t{1} << 20, 256, "N1M");
  add_signs(cases, std::int64_t{1} << 24, 256, "N16M");
  constexpr std::int64_t kCount = std::int64_t{1} << 24;
  add_top_k(cases, kCount, kCount / 100, "N16M");
  add_top_k(cases, kCount, kCount / 1000, "N16M");
  return cases;
}

}  // namespace lockstep::kernels
