#include "kernels/registry.h"

#include <array>
#include <iterator>

#include "kernels/attention/attention_cases.h"
#include "kernels/bucket/bucket_cases.h"
#include "kernels/cast/cast_cases.h"
#include "kernels/cross_entropy/cross_entropy_cases.h"
#include "kernels/dropout/dropout_cases.h"
#include "kernels/embedding/embedding_cases.h"
#include "kernels/gelu/gelu_cases.h"
#include "kernels/gemm/gemm_cases.h"
#include "kernels/norm/norm_cases.h"
#include "kernels/optimizer/optimizer_cases.h"
#include "kernels/quantize/quantize_cases.h"
#include "kernels/reduce/reduction_cases.h"
#include "kernels/residual/residual_cases.h"
#include "kernels/softmax/softmax_cases.h"

namespace lockstep::kernels {
namespace {

constexpr std::array kFamilies{
    KernelFamily{"gemm", gemm_test_cases, gemm_bench_cases},
    KernelFamily{"attention", attention_test_cases, attention_bench_cases},
    KernelFamily{"gelu", gelu_test_cases, gelu_bench_cases},
    KernelFamily{"softmax", softmax_test_cases, softmax_bench_cases},
    KernelFamily{"norm", norm_test_cases, norm_bench_cases},
    KernelFamily{"dropout", dropout_test_cases, dropout_bench_cases},
    KernelFamily{"residual", residual_test_cases, residual_bench_cases},
    KernelFamily{"cross_entropy", cross_entropy_test_cases, cross_entropy_bench_cases},
    KernelFamily{"embedding", embedding_test_cases, embedding_bench_cases},
    KernelFamily{"optimizer", optimizer_test_cases, optimizer_bench_cases},
    KernelFamily{"cast", cast_test_cases, cast_bench_cases},
    KernelFamily{"quantize", quantize_test_cases, quantize_bench_cases},
    KernelFamily{"bucket", bucket_test_cases, bucket_bench_cases},
    KernelFamily{"reduction", reduction_test_cases, reduction_bench_cases},
};

std::vector<KernelCase> cases_of_all(std::vector<KernelCase> (*KernelFamily::*cases)()) {
  std::vector<KernelCase> all;
  for (const KernelFamily& family : kFamilies) {
    std::vector<KernelCase> some = (family.*cases)();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace

std::span<const KernelFamily> kernel_families() {
  return kFamilies;
}

std::vector<KernelCase> all_test_cases() {
  return cases_of_all(&KernelFamily::test_cases);
}

std::vector<KernelCase> all_bench_cases() {
  return cases_of_all(&KernelFamily::bench_cases);
}

}  // namespace lockstep::kernels
