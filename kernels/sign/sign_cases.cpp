#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/sign/sign.h"
#include "kernels/sign/sign_reference.h"

namespace lockstep::kernels {
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
