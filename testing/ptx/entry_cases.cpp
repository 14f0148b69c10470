#include "testing/ptx/entry_cases.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "kernels/attention/attention.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/fp8/fp8.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/norm/norm_reference.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/quantize/quantize.h"
#include "kernels/registry.h"
#include "kernels/softmax/softmax.h"
#include "testing/kernels/attention_shapes.h"

namespace lockstep::ptx {
namespace {

using core::DType;
using kernels::Draw;
using kernels::KernelCase;

void add_rows(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, DType dtype) {
  using kernels::CrossEntropy;
  const std::map<std::string, std::int64_t> terms{{"y", columns}, {"dx", columns}};
  const kernels::CaseFacts facts{.shape = fmt::format("R{}_C{}", rows, columns), .dtype = dtype, .terms = terms};
  cases.push_back(make_case(kernels::SoftmaxForward{.rows = rows, .columns = columns}, facts));
  cases.push_back(make_case(kernels::SoftmaxBackward{.rows = rows, .columns = columns}, facts));
  cases.push_back(case_of(shaped(CrossEntropy{.rows = rows, .columns = columns, .valid_columns = columns}, dtype)));
  for (const kernels::Norm norm : {kernels::Norm::layer, kernels::Norm::rms}) {
    cases.push_back(case_of(shaped(kernels::NormForward{.norm = norm, .rows = rows, .columns = columns}, dtype)));
  }
}

void add_norm_backward(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, DType dtype) {
  for (const kernels::Norm norm : {kernels::Norm::layer, kernels::Norm::rms}) {
    cases.push_back(case_of(shaped(kernels::NormBackward{.norm = norm, .rows = rows, .columns = columns}, dtype)));
  }
}

// Weights of one type with gradients of another.
void add_optimizers(std::vector<KernelCase>& cases) {
  for (const DType gradient : kernels::kActivationDTypes) {
    for (const DType weight : {DType::bf16, DType::f16}) {
      if (gradient == weight) continue;
      for (const kernels::OptimizerKind kind : kernels::kOptimizerKinds) {
        auto step = shaped(kernels::OptimizerStep{.count = 131, .kind = kind, .narrow_weights = true}, weight);
        step.grad.dtype = gradient;
        cases.push_back(case_of(step, fmt::format("N131_from_{}", core::short_name_of(gradient))));
      }
    }
  }
}

void add_buckets(std::vector<KernelCase>& cases) {
  for (const DType from : kernels::kActivationDTypes) {
    for (const DType to : kernels::kActivationDTypes) {
      if (from == to) continue;
      auto args = shaped(kernels::PackBucket{.scale = 0.25F, .counts = {1, 300, 17}}, from);
      args.bucket.dtype = to;
      cases.push_back(
          make_shaped_case(args, {.shape = fmt::format("3_from_{}", core::short_name_of(from)), .dtype = to}));
    }
  }
}

void add_fp8(std::vector<KernelCase>& cases, kernels::Fp8Encode args, DType other) {
  for (const bool delayed : {false, true}) {
    for (const bool transposed : {false, true}) {
      args.delayed = delayed;
      args.transposed = transposed;
      cases.push_back(case_of(shaped(args, other)));
    }
  }
  const kernels::Fp8Decode decode{.rows = args.rows, .columns = args.columns, .per = args.per, .from = args.to};
  cases.push_back(case_of(shaped(decode, other)));
}

// `block`: elements; above 4,096 a block of threads has it.
void add_quantized(std::vector<KernelCase>& cases, std::int64_t count, std::int64_t block, DType dtype) {
  const kernels::CaseFacts facts{.shape = fmt::format("N{}_b{}", count, block),
                                 .dtype = dtype,
                                 .draws = {{"codes", {.kind = Draw::Kind::index, .below = 100}}}};
  cases.push_back(make_case(kernels::Quantize{.count = count, .block = block}, facts));
  cases.push_back(make_case(kernels::Dequantize{.count = count, .block = block}, facts));
  cases.push_back(make_case(kernels::QuantizeInt4{.count = count, .block = block}, facts));
  cases.push_back(make_case(kernels::DequantizeInt4{.count = count, .block = block}, facts));
}

void add_shards(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, DType dtype) {
  constexpr std::int64_t kShards = 2;
  const std::int64_t valid = columns - 7;
  const kernels::CrossEntropyStats stats{.rows = rows, .columns = columns, .valid_columns = valid, .first_id = columns};
  const kernels::CrossEntropyFinish finish{
      .rows = rows, .columns = columns, .valid_columns = valid, .first_id = columns, .shards = kShards, .scale = 0.25F};
  cases.push_back(case_of(shaped(stats, dtype), kShards));
  cases.push_back(case_of(shaped(finish, dtype)));
}

}  // namespace

std::vector<KernelCase> attention_ring_cases(DType dtype) {
  using kernels::AttentionShape;
  std::vector<AttentionShape> shapes(kernels::kAttentionWgmmaShapes.begin(), kernels::kAttentionWgmmaShapes.end());
  shapes.push_back({1, 1, 130, 650, 64, false});
  shapes.push_back({1, 1, 400, 400, 64});
  std::vector<KernelCase> cases;
  for (const AttentionShape& shape : shapes) {
    cases.push_back(case_of(shaped(kernels::AttentionForward{.shape = shape}, dtype)));
    cases.push_back(case_of(shaped(kernels::AttentionBackward{.shape = shape}, dtype)));
  }
  return cases;
}

// Groups that are empty, end within a tile, fill one, or need several; more groups than a launch takes; more depth than
// a ring.
std::vector<KernelCase> grouped_cases(DType dtype) {
  using kernels::GroupedShape;
  const std::vector<std::pair<const char*, GroupedShape>> shapes{
      {"ragged", {{0, 130, 0, 70, 1}, 72, 136}}, {"tails", {{64, 129}, 136, 264}},
      {"deep_inputs", {{20, 130}, 520, 136}},    {"deep_outputs", {{20, 130}, 136, 520}},
      {"deep_rows", {{20, 580}, 72, 136}},       {"many_groups", {std::vector<std::int64_t>(70, 33), 64, 64}},
  };
  std::vector<KernelCase> cases;
  for (const auto& [name, shape] : shapes) {
    using kernels::Epilogue;
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
      cases.push_back(case_of(shaped(kernels::GroupedGemmForward{.shape = shape, .epilogue = epilogue}, dtype), name));
    }
    for (const bool flag : {false, true}) {
      const kernels::GroupedGemmInputGradient input{.shape = shape, .through_gelu = flag};
      const kernels::GroupedGemmWeightGradient weight{.shape = shape, .with_bias = flag};
      cases.push_back(case_of(shaped(input, dtype), name));
      cases.push_back(case_of(shaped(weight, dtype), name));
    }
  }
  return cases;
}

std::vector<KernelCase> long_row_cases(DType dtype) {
  constexpr std::int64_t kPastTheStashBytes = 240'000;  // 224 KiB are kept
  constexpr std::int64_t kPastTheRegisters = 9'024;     // columns; a block keeps 8,192
  std::vector<KernelCase> cases;
  add_rows(cases, 1, kPastTheStashBytes / static_cast<std::int64_t>(core::size_of(dtype)), dtype);
  add_norm_backward(cases, 3, kPastTheRegisters, dtype);
  return cases;
}

std::vector<KernelCase> many_row_cases(DType dtype) {
  constexpr std::int64_t kRows = 35;        // one multiprocessor has 32 blocks
  constexpr std::int64_t kColumns = 1'032;  // more than a warp keeps
  std::vector<KernelCase> cases;
  add_rows(cases, kRows, kColumns, dtype);
  add_norm_backward(cases, kRows, kColumns, dtype);
  add_norm_backward(cases, kRows, 136, dtype);
  add_shards(cases, kRows, kColumns, dtype);
  add_quantized(cases, kRows * 4'104, 4'104, dtype);
  return cases;
}

std::vector<KernelCase> typed_cases() {
  using kernels::ScalePer;
  std::vector<KernelCase> cases;
  add_optimizers(cases);
  add_buckets(cases);
  for (const ScalePer per : {ScalePer::tensor, ScalePer::row, ScalePer::tile, ScalePer::block}) {
    for (const DType fp8 : {DType::f8e4m3, DType::f8e5m2}) {
      for (const DType other : {DType::f32, DType::bf16}) {
        add_fp8(cases, {.rows = 48, .columns = 144, .per = per, .to = fp8}, other);
      }
    }
  }
  for (const DType dtype : kernels::kActivationDTypes) {
    add_quantized(cases, 9'000, 5'000, dtype);
    add_shards(cases, 3, 1'024, dtype);
    const kernels::AttentionShape wide_heads{1, 1, 33, 70, 200};
    cases.push_back(case_of(shaped(kernels::AttentionForward{.shape = wide_heads}, dtype)));
    cases.push_back(case_of(shaped(kernels::AttentionBackward{.shape = wide_heads}, dtype)));
  }
  return cases;
}

}  // namespace lockstep::ptx
