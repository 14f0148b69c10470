// All families of kernels with their cases, in one explicit list: the cases that tests run on every device and that the
// benchmark offers; and cases made from the arguments of a kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
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
std::vector<KernelCase> activation_test_cases(), activation_bench_cases();
std::vector<KernelCase> rotary_test_cases(), rotary_bench_cases();
std::vector<KernelCase> softmax_test_cases(), softmax_bench_cases();
std::vector<KernelCase> norm_test_cases(), norm_bench_cases();
std::vector<KernelCase> residual_test_cases(), residual_bench_cases();
std::vector<KernelCase> cross_entropy_test_cases(), cross_entropy_bench_cases();
std::vector<KernelCase> embedding_test_cases(), embedding_bench_cases();
std::vector<KernelCase> optimizer_test_cases(), optimizer_bench_cases();
std::vector<KernelCase> cast_test_cases(), cast_bench_cases();
std::vector<KernelCase> quantize_test_cases(), quantize_bench_cases();
std::vector<KernelCase> compress_test_cases(), compress_bench_cases();
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
    KernelFamily{"activation", activation_test_cases, activation_bench_cases},
    KernelFamily{"rotary", rotary_test_cases, rotary_bench_cases},
    KernelFamily{"softmax", softmax_test_cases, softmax_bench_cases},
    KernelFamily{"norm", norm_test_cases, norm_bench_cases},
    KernelFamily{"residual", residual_test_cases, residual_bench_cases},
    KernelFamily{"cross_entropy", cross_entropy_test_cases, cross_entropy_bench_cases},
    KernelFamily{"embedding", embedding_test_cases, embedding_bench_cases},
    KernelFamily{"optimizer", optimizer_test_cases, optimizer_bench_cases},
    KernelFamily{"cast", cast_test_cases, cast_bench_cases},
    KernelFamily{"quantize", quantize_test_cases, quantize_bench_cases},
    KernelFamily{"compress", compress_test_cases, compress_bench_cases},
    KernelFamily{"fp8", fp8_test_cases, fp8_bench_cases},
    KernelFamily{"bucket", bucket_test_cases, bucket_bench_cases},
    KernelFamily{"reduction", reduction_test_cases, reduction_bench_cases},
    KernelFamily{"moe", moe_test_cases, moe_bench_cases},
};

// Test cases of kernels made from arguments whose views have dtypes and lengths: for a family's own tests, and for
// benchmarks of kernels with the shapes of a training step. A family's NAME_cases.cpp defines its functions.

struct AttentionForward;
struct AttentionBackward;
KernelCase case_of(const AttentionForward& args);
KernelCase case_of(const AttentionBackward& args);

struct AttentionMerge;
KernelCase case_of(const AttentionMerge& args);

struct CopyRows;
KernelCase case_of(const CopyRows& args);

// A shard is one of `shards`, all as long as this one except the last.
struct CrossEntropy;
struct CrossEntropyStats;
struct CrossEntropyFinish;
KernelCase case_of(const CrossEntropy& args);
KernelCase case_of(const CrossEntropyStats& args, std::int64_t shards);
KernelCase case_of(const CrossEntropyFinish& args);

// Ids are drawn from the whole vocabulary, of which the table may be a shard. vocabulary = 0: the table has all.
struct EmbeddingForward;
struct EmbeddingBackward;
KernelCase case_of(const EmbeddingForward& args, std::int64_t vocabulary = 0);
KernelCase case_of(const EmbeddingBackward& args, std::int64_t vocabulary = 0);

struct Fp8Encode;
struct Fp8Decode;
struct GemmFp8;
struct GemmFp8Add;
KernelCase case_of(const Fp8Encode& args);
KernelCase case_of(const Fp8Decode& args);
KernelCase case_of(const GemmFp8& args);
KernelCase case_of(const GemmFp8Add& args);

struct GemmForward;
struct GemmInputGradient;
struct GemmWeightGradient;
KernelCase case_of(const GemmForward& args);
KernelCase case_of(const GemmInputGradient& args);
KernelCase case_of(const GemmWeightGradient& args);

struct GroupedGemmForward;
struct GroupedGemmInputGradient;
struct GroupedGemmWeightGradient;
KernelCase case_of(const GroupedGemmForward& args, std::string shape);
KernelCase case_of(const GroupedGemmInputGradient& args, std::string shape);
KernelCase case_of(const GroupedGemmWeightGradient& args, std::string shape);

struct Rotary;
KernelCase case_of(const Rotary& args);

// `shape` becomes part of the case's name; if it is empty, the name has the arguments' numbers, such as "N1031".
struct GeluBackward;
struct GeluForward;
struct NormBackward;
struct NormForward;
struct OptimizerStep;
struct ResidualAdd;
struct SumOfSquares;
struct SwigluBackward;
struct SwigluForward;
KernelCase case_of(const GeluBackward& args, std::string shape = {});
KernelCase case_of(const GeluForward& args, std::string shape = {});
KernelCase case_of(const NormBackward& args, std::string shape = {});
KernelCase case_of(const NormForward& args, std::string shape = {});
KernelCase case_of(const OptimizerStep& args, std::string shape = {}, const Draw& weights = {});
KernelCase case_of(const ResidualAdd& args, std::string shape = {});
KernelCase case_of(const SumOfSquares& args, std::string shape = {});
KernelCase case_of(const SwigluBackward& args, std::string shape = {});
KernelCase case_of(const SwigluForward& args, std::string shape = {});

}  // namespace lockstep::kernels
