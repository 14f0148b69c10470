// Cases of dropout and of the sum, with the reference of dropout: a plain loop, for tests.
#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {

template <class S>
void reference(const Dropout& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto y = data["y"];
  const S keep_share(1 - static_cast<double>(args.rate));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t element = args.first_element + i;
    const std::uint32_t word = philox_block(args.seed, args.step, element / 4)[element % 4];
    const S scaled = x[i] / keep_share;
    y[i] = word >= dropout_threshold(args.rate) ? scaled : S(0);
  }
}

namespace {

constexpr float kRate = 0.1F;

// First elements at each position in a block of four, one where block numbers exceed 32 bits.
constexpr std::uint64_t kFirstElements[] = {0, 1, 6, (std::uint64_t{1} << 34) - 5};

}  // namespace

KernelCase case_of(const ResidualAdd& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.a.dtype});
}

std::vector<KernelCase> residual_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) {
      for (std::uint64_t first : kFirstElements) {
        if (count > 2000 && first > 1) continue;
        const Dropout dropout{.count = count, .rate = kRate, .seed = 7, .step = 3, .first_element = first};
        cases.push_back(make_case(dropout, {.shape = fmt::format("N{}_from{}", count, first), .dtype = dtype}));
      }
    }
  }
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) {
      cases.push_back(case_of(shaped(ResidualAdd{.count = count}, dtype)));
    }
  }
  return cases;
}

std::vector<KernelCase> residual_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const Dropout dropout{.count = tokens.rows() * tokens.channels, .rate = kRate, .seed = 7, .step = 3};
      cases.push_back(make_case(dropout, {.shape = tokens.name(), .dtype = dtype}));
    }
  }
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const ResidualAdd add{.count = tokens.rows() * tokens.channels};
      cases.push_back(case_of(shaped(add, dtype), tokens.name()));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
