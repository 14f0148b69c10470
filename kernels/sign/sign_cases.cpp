// Reference: plain loops, for tests.
#include "kernels/registry.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/reference_data.h"
#include "kernels/sign/sign.h"

namespace lockstep::kernels {

inline double value_of(double x) {
  return x;
}
inline double value_of(const Counted& x) {
  return x.value();
}

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
    const bool negative = (static_cast<int>(value_of(codes[i / 8])) >> i % 8 & 1) != 0;
    y[i] = negative ? -scale : scale;
  }
}

namespace {

void add(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t block, const std::string& length) {
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

std::vector<KernelCase> sign_test_cases() {
  std::vector<KernelCase> cases;
  for (std::int64_t count : test_counts(core::DType::f32)) add(cases, count, 256, fmt::format("N{}", count));
  for (std::int64_t block : {8, 24, 1000}) add(cases, 4099, block, "N4099");
  return cases;
}

std::vector<KernelCase> sign_bench_cases() {
  std::vector<KernelCase> cases;
  add(cases, std::int64_t{1} << 16, 256, "N64K");
  add(cases, std::int64_t{1} << 20, 256, "N1M");
  add(cases, std::int64_t{1} << 24, 256, "N16M");
  return cases;
}

}  // namespace lockstep::kernels
