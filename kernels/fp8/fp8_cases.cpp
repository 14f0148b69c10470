#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/fp8_reference.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

using core::DType;

constexpr std::array kPer{ScalePer::tensor, ScalePer::row, ScalePer::tile, ScalePer::block};
constexpr std::array kFormats{DType::f8e4m3, DType::f8e5m2};

// Numbers of one sign whose codes are normal in either format, as the tolerance is relative. References divide scales
// exactly, and so do kernels.
const Draw kNumbers{.kind = Draw::Kind::positive, .scale = 3};

std::string named(ScalePer per, DType to, std::int64_t rows, std::int64_t columns) {
  return fmt::format("per_{}_{}_R{}_C{}", name_of(per), core::short_name_of(to), rows, columns);
}

struct EncodeForm {
  bool delayed = false;
  bool transposed = false;
};
KernelCase encode(ScalePer per, DType to, DType from, std::int64_t rows, std::int64_t columns, EncodeForm form = {}) {
  std::string shape = named(per, to, rows, columns);
  if (form.delayed) shape += "_delayed";
  if (form.transposed) shape += "_transposed";
  return make_case(
      Fp8Encode{.rows = rows,
                .columns = columns,
                .per = per,
                .to = to,
                .delayed = form.delayed,
                .transposed = form.transposed},
      {.shape = shape, .dtype = from, .draws = {{"x", kNumbers}, {"previous", kNumbers}, {"raised", kNumbers}}});
}

// Draws of scales that are powers of two.
void make_scales(ReferenceData<double>& data) {
  for (const char* const name : {"scales", "a_scales", "b_scales"}) {
    for (double& scale : data[name]) scale = scale < 0 ? 0.25 : scale < 0.7 ? 1 : 8;
  }
}

KernelCase decode(ScalePer per, DType from, DType to, std::int64_t rows, std::int64_t columns) {
  return make_case(
      Fp8Decode{.rows = rows, .columns = columns, .per = per, .from = from},
      {.shape = named(per, from, rows, columns), .dtype = to, .draws = {{"codes", kNumbers}}, .derive = make_scales});
}

// Named by what is multiplied; results have a dtype of their own.
CaseFacts product_facts(const Fp8Product& s, DType result, std::map<std::string, std::int64_t> terms) {
  return {
      .shape = fmt::format("{}_{}_by_{}_{}_M{}_N{}_K{}_to_{}", core::short_name_of(s.a_type), name_of(s.a_per),
                           core::short_name_of(s.b_type), name_of(s.b_per), s.m, s.n, s.k, core::short_name_of(result)),
      .dtype = s.a_type,
      .terms = std::move(terms),
      .derive = make_scales,
      .deterministic = false};
}

template <class Args>
KernelCase product(const Args& args, DType result, std::map<std::string, std::int64_t> terms) {
  return make_shaped_case(shaped(args, result), product_facts(args.shape, result, std::move(terms)));
}

void add_products(std::vector<KernelCase>& cases, const Fp8Product& shape, DType result, bool with_bias) {
  cases.push_back(product(GemmFp8{.shape = shape, .with_bias = with_bias}, result, {{"y", shape.k}}));
  cases.push_back(
      product(GemmFp8Add{.shape = shape, .with_bias = with_bias}, result, {{"dw", shape.k}, {"dbias", shape.k}}));
}

}  // namespace

std::vector<KernelCase> fp8_test_cases() {
  std::vector<KernelCase> cases;
  for (const ScalePer per : kPer) {
    for (const DType to : kFormats) {
      for (const DType other : kActivationDTypes) {
        for (const auto& [rows, columns] : {std::pair{1, 1}, std::pair{3, 17}, std::pair{130, 131}}) {
          for (const bool delayed : {false, true}) {
            for (const bool transposed : {false, true}) {
              cases.push_back(encode(per, to, other, rows, columns, {delayed, transposed}));
            }
          }
          cases.push_back(decode(per, to, other, rows, columns));
        }
      }
      cases.push_back(encode(per, to, DType::f32, 300, 1031));
    }
  }
  for (const DType result : {DType::f32, DType::bf16}) {
    for (const auto& [a, b] : {std::pair{ScalePer::tensor, ScalePer::tensor}, std::pair{ScalePer::row, ScalePer::row},
                               std::pair{ScalePer::row, ScalePer::tensor}, std::pair{ScalePer::tile, ScalePer::block},
                               std::pair{ScalePer::tile, ScalePer::tile}}) {
      for (const DType a_type : kFormats) {
        add_products(cases, {.m = 5, .n = 3, .k = 7, .a_type = a_type, .a_per = a, .b_per = b}, result, true);
        add_products(cases, {.m = 33, .n = 130, .k = 260, .a_type = a_type, .a_per = a, .b_per = b}, result, false);
      }
    }
    add_products(cases, {.m = 64, .n = 32, .k = 128}, result, true);
  }
  return cases;
}

std::vector<KernelCase> fp8_bench_cases() {
  std::vector<KernelCase> cases;
  constexpr std::int64_t kSide = 4096;
  for (const ScalePer per : kPer) {
    cases.push_back(encode(per, DType::f8e4m3, DType::bf16, kSide, kSide));
    cases.push_back(encode(per, DType::f8e4m3, DType::bf16, kSide, kSide, {.transposed = true}));
    cases.push_back(decode(per, DType::f8e4m3, DType::bf16, kSide, kSide));
  }
  cases.push_back(encode(ScalePer::tensor, DType::f8e4m3, DType::bf16, kSide, kSide, {.delayed = true}));
  for (const auto& [a, b] : {std::pair{ScalePer::tensor, ScalePer::tensor}, std::pair{ScalePer::row, ScalePer::row},
                             std::pair{ScalePer::tile, ScalePer::block}}) {
    for (const auto& [m, n, k] : {std::tuple{1024, 768, 256}, std::tuple{256, 3072, 768}}) {
      add_products(cases, {.m = m, .n = n, .k = k, .a_per = a, .b_per = b}, DType::bf16, false);
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
