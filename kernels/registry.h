// All families of kernels with their cases, in one explicit list: the cases that tests run on every device and that the
// benchmark offers.
#pragma once

#include <array>
#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

struct KernelFamily {
  const char* name;                          // "gemm", "attention", ...
  std::vector<KernelCase> (*test_cases)();   // small and odd shapes, all dtypes
  std::vector<KernelCase> (*bench_cases)();  // the trainer's shapes, and some that fit in no cache
};

// Defined by NAME_cases.cpp in the family's folder.
std::vector<KernelCase> gemm_test_cases(), gemm_bench_cases();
std::vector<KernelCase> attention_test_cases(), attention_bench_cases();
std::vector<KernelCase> attention_decode_test_cases(), attention_decode_bench_cases();
std::vector<KernelCase> attention_merge_test_cases(), attention_merge_bench_cases();
std::vector<KernelCase> copy_test_cases(), copy_bench_cases();
std::vector<KernelCase> gelu_test_cases(), gelu_bench_cases();
std::vector<KernelCase> swiglu_test_cases(), swiglu_bench_cases();
std::vector<KernelCase> rotary_test_cases(), rotary_bench_cases();
std::vector<KernelCase> softmax_test_cases(), softmax_bench_cases();
std::vector<KernelCase> norm_test_cases(), norm_bench_cases();
std::vector<KernelCase> dropout_test_cases(), dropout_bench_cases();
std::vector<KernelCase> residual_test_cases(), residual_bench_cases();
std::vector<KernelCase> cross_entropy_test_cases(), cross_entropy_bench_cases();
std::vector<KernelCase> embedding_test_cases(), embedding_bench_cases();
std::vector<KernelCase> optimizer_test_cases(), optimizer_bench_cases();
std::vector<KernelCase> cast_test_cases(), cast_bench_cases();
std::vector<KernelCase> quantize_test_cases(), quantize_bench_cases();
std::vector<KernelCase> sign_test_cases(), sign_bench_cases();
std::vector<KernelCase> top_k_test_cases(), top_k_bench_cases();
std::vector<KernelCase> fp8_test_cases(), fp8_bench_cases();
std::vector<KernelCase> bucket_test_cases(), bucket_bench_cases();
std::vector<KernelCase> reduction_test_cases(), reduction_bench_cases();
std::vector<KernelCase> moe_test_cases(), moe_bench_cases();

inline constexpr std::array kKernelFamilies{
    KernelFamily{"gemm", gemm_test_cases, gemm_bench_cases},
    KernelFamily{"attention", attention_test_cases, attention_bench_cases},
    KernelFamily{"attention_decode", attention_decode_test_cases, attention_decode_bench_cases},
    KernelFamily{"attention_merge", attention_merge_test_cases, attention_merge_bench_cases},
    KernelFamily{"copy", copy_test_cases, copy_bench_cases},
    KernelFamily{"gelu", gelu_test_cases, gelu_bench_cases},
    KernelFamily{"swiglu", swiglu_test_cases, swiglu_bench_cases},
    KernelFamily{"rotary", rotary_test_cases, rotary_bench_cases},
    KernelFamily{"softmax", softmax_test_cases, softmax_bench_cases},
    KernelFamily{"norm", norm_test_cases, norm_bench_cases},
    KernelFamily{"dropout", dropout_test_cases, dropout_bench_cases},
    KernelFamily{"residual", residual_test_cases, residual_bench_cases},
    KernelFamily{"cross_entropy", cross_entropy_test_cases, cross_entropy_bench_cases},
    KernelFamily{"embedding", embedding_test_cases, embedding_bench_cases},
    KernelFamily{"optimizer", optimizer_test_cases, optimizer_bench_cases},
    KernelFamily{"cast", cast_test_cases, cast_bench_cases},
    KernelFamily{"quantize", quantize_test_cases, quantize_bench_cases},
    KernelFamily{"sign", sign_test_cases, sign_bench_cases},
    KernelFamily{"top_k", top_k_test_cases, top_k_bench_cases},
    KernelFamily{"fp8", fp8_test_cases, fp8_bench_cases},
    KernelFamily{"bucket", bucket_test_cases, bucket_bench_cases},
    KernelFamily{"reduction", reduction_test_cases, reduction_bench_cases},
    KernelFamily{"moe", moe_test_cases, moe_bench_cases},
};

}  // namespace lockstep::kernels
