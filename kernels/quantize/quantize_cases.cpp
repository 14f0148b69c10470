#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/quantize/quantize.h"

namespace lockstep::kernels {
namespace {

template <int kBits>
void add(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t block, core::DType dtype,
         const std::string& length) {
  const std::string shape = fmt::format("{}_b{}", length, block);
  cases.push_back(make_case(QuantizeTo<kBits>{.count = count, .block = block}, {.shape = shape, .dtype = dtype}));
  cases.push_back(make_case(DequantizeFrom<kBits>{.count = count, .block = block},
                            {.shape = shape,
                             .dtype = dtype,
                             .draws = {{"codes", {.kind = Draw::Kind::index, .below = kBits == 8 ? 128 : 256}},
                                       {"scales", {.kind = Draw::Kind::positive, .scale = 0.01}}}}));
}

}  // namespace

std::vector<KernelCase> quantize_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) {
      add<8>(cases, count, 256, dtype, fmt::format("N{}", count));
      add<4>(cases, count, 256, dtype, fmt::format("N{}", count));
    }
    add<8>(cases, 16384, 256, dtype, "N16K");
    add<4>(cases, 16384, 256, dtype, "N16K");
    for (std::int64_t block : {1, 3, 16, 127, 1000}) add<8>(cases, 4099, block, dtype, "N4099");
    for (std::int64_t block : {2, 6, 16, 126, 1000}) add<4>(cases, 4099, block, dtype, "N4099");
  }
  return cases;
}

std::vector<KernelCase> quantize_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    add<8>(cases, std::int64_t{1} << 24, 256, dtype, "N16M");
    add<4>(cases, std::int64_t{1} << 24, 256, dtype, "N16M");
  }
  // Codes for a message of f32 in the L2 and in the last-level cache, to compare with copy_rows of the same size.
  add<8>(cases, std::int64_t{1} << 16, 256, core::DType::f32, "N64K");
  add<4>(cases, std::int64_t{1} << 16, 256, core::DType::f32, "N64K");
  add<8>(cases, std::int64_t{1} << 20, 256, core::DType::f32, "N1M");
  add<4>(cases, std::int64_t{1} << 20, 256, core::DType::f32, "N1M");
  return cases;
}

}  // namespace lockstep::kernels
