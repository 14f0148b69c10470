// Makes the test case of a kernel from arguments whose views have dtypes and lengths: for a family's own tests, and for
// benchmarks of kernels with the shapes of a training step. kernels/registry.h lists the cases of all families. A
// family's NAME_cases.cpp defines its functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

struct AttentionShape;
struct AttentionForward;
struct AttentionBackward;
KernelCase case_of(const AttentionForward& args);
KernelCase case_of(const AttentionBackward& args);
// Shapes for attention's own tests. The registry lists cases that are causal and not, strided and packed, with as many
// queries as keys and fewer.
std::span<const AttentionShape> attention_test_shapes();
// Shapes that wgmma takes: tails of tiles, several tiles, strides, groups.
std::span<const AttentionShape> attention_wgmma_test_shapes();

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

// Ids are drawn from the whole vocabulary, of which the table may be a shard. vocabulary = 0: the table is all of it.
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
struct AdamW;
struct GeluBackward;
struct GeluForward;
struct NormBackward;
struct NormForward;
struct ResidualAdd;
struct SumOfSquares;
struct SwigluBackward;
struct SwigluForward;
KernelCase case_of(const AdamW& args, std::string shape = {}, const Draw& weights = {});
KernelCase case_of(const GeluBackward& args, std::string shape = {});
KernelCase case_of(const GeluForward& args, std::string shape = {});
KernelCase case_of(const NormBackward& args, std::string shape = {});
KernelCase case_of(const NormForward& args, std::string shape = {});
KernelCase case_of(const ResidualAdd& args, std::string shape = {});
KernelCase case_of(const SumOfSquares& args, std::string shape = {});
KernelCase case_of(const SwigluBackward& args, std::string shape = {});
KernelCase case_of(const SwigluForward& args, std::string shape = {});

}  // namespace lockstep::kernels
