#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/bucket/bucket.h"

namespace lockstep::kernels {
namespace {

using Counts = std::vector<std::int64_t>;

void add(std::vector<KernelCase>& cases, const Counts& counts, float scale, core::DType dtype,
         const std::string& shape) {
  cases.push_back(make_case(PackBucket{.scale = scale, .counts = counts}, {.shape = shape, .dtype = dtype}));
  cases.push_back(make_case(UnpackBucket{.scale = scale, .counts = counts}, {.shape = shape, .dtype = dtype}));
}

// The tensors of one transformer block: two norms, query-key-value, projection, and the two layers of the MLP, with
// weights and biases.
Counts block_of_gpt2(std::int64_t channels) {
  const std::int64_t square = channels * channels;
  return {channels, channels, 3 * square, 3 * channels, square,     channels,
          channels, channels, 4 * square, 4 * channels, 4 * square, channels};
}

}  // namespace

std::vector<KernelCase> bucket_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (float scale : {1.0F, 0.25F}) {
      add(cases, {1}, scale, dtype, fmt::format("1_by{}", scale));
      add(cases, {1, 3, 17, 127, 1, 1031, 64}, scale, dtype, fmt::format("7_odd_by{}", scale));
      add(cases, {20011, 1, 1, 30011}, scale, dtype, fmt::format("4_large_by{}", scale));
      add(cases, Counts(60, 7), scale, dtype, fmt::format("60_small_by{}", scale));
    }
  }
  return cases;
}

std::vector<KernelCase> bucket_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (std::int64_t channels : {256, 768}) {
      add(cases, block_of_gpt2(channels), 1, dtype, fmt::format("gpt2_block_C{}", channels));
      add(cases, block_of_gpt2(channels), 0.125F, dtype, fmt::format("gpt2_block_C{}_scaled", channels));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
