#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/fp8/fp8_reference.h"

namespace lockstep::kernels {
namespace {

using core::DType;

constexpr std::array kPer{ScalePer::tensor, ScalePer::row, ScalePer::tile, ScalePer::block};
constexpr std::array kFormats{DType::f8e4m3, DType::f8e5m2};

// Draws numbers of one sign whose codes are normal in either format, because the tolerance is relative. References
// divide by scales exactly, and so do kernels.
const Draw kNumbers{.kind = Draw::Kind::positive, .scale = 3};

std::string named(ScalePer per, DType fp8, std::int64_t rows, std::int64_t columns) {
  return fmt::format("per_{}_{}_R{}_C{}", name_of(per), core::short_name_of(fp8), rows, columns);
}

// Turns drawn scales into powers of two.
void make_scales(ReferenceData<double>& data) {
  for (const char* const name : {"scales", "a_scales", "b_scales"}) {
    for (double& scale : data[name]) scale = scale < 0 ? 0.25 : scale < 0.7 ? 1 : 8;
  }
}

// Named after the operands; results, and the rows whose sum is a bias's gradient, have their own dtype.
template <class Args>
KernelCase product(const Args& args, DType result, std::map<std::string, std::int64_t> terms) {
  const Fp8Product& s = args.shape;
  return make_shaped_case(args, {.shape = fmt::format("{}_{}_by_{}_{}_M{}_N{}_K{}_to_{}", core::short_name_of(s.a_type),
                                                      name_of(s.a_per), core::short_name_of(s.b_type), name_of(s.b_per),
                                                      s.m, s.n, s.k, core::short_name_of(result)),
                                 .dtype = s.a_type,
                                 .terms = std::move(terms),
                                 .derive = make_scales,
                                 .deterministic = false});
}

void add_products(std::vector<KernelCase>& cases, const Fp8Product& shape, DType result, bool with_bias) {
  cases.push_back(case_of(shaped(GemmFp8{.shape = shape, .with_bias = with_bias}, result)));
  // Without a bias, only the product is written, in f32 whatever `result` is.
  if (!with_bias && result == DType::f32) return;
  cases.push_back(case_of(shaped(GemmFp8Add{.shape = shape, .with_bias = with_bias}, result)));
}

void add_codes(std::vector<KernelCase>& cases, Fp8Encode args, DType other) {
  for (const bool delayed : {false, true}) {
    for (const bool transposed : {false, true}) {
      args.delayed = delayed;
      args.transposed = transposed;
      cases.push_back(case_of(shaped(args, other)));
    }
  }
  const Fp8Decode decode{.rows = args.rows, .columns = args.columns, .per = args.per, .from = args.to};
  cases.push_back(case_of(shaped(decode, other)));
}

}  // namespace

KernelCase case_of(const Fp8Encode& args) {
  return make_shaped_case(
      args, {.shape = named(args.per, args.to, args.rows, args.columns) + (args.delayed ? "_delayed" : ""),
             .dtype = args.x.dtype,
             .draws = {{"x", kNumbers}, {"previous", kNumbers}, {"raised", kNumbers}}});
}

KernelCase case_of(const Fp8Decode& args) {
  return make_shaped_case(args, {.shape = named(args.per, args.from, args.rows, args.columns),
                                 .dtype = args.y.dtype,
                                 .draws = {{"codes", kNumbers}},
                                 .derive = make_scales});
}

KernelCase case_of(const GemmFp8& args) {
  return product(args, args.y.dtype, {{"y", args.shape.k}});
}

KernelCase case_of(const GemmFp8Add& args) {
  return product(args, args.with_bias ? args.dy.dtype : DType::f32, {{"dw", args.shape.k}, {"dbias", args.shape.k}});
}

std::vector<KernelCase> fp8_test_cases() {
  std::vector<KernelCase> cases;
  for (const ScalePer per : kPer) {
    for (const DType fp8 : kFormats) {
      for (const DType other : kActivationDTypes) {
        add_codes(cases, {.rows = 130, .columns = 131, .per = per, .to = fp8}, other);
        add_codes(cases, {.rows = 144, .columns = 272, .per = per, .to = fp8}, other);  // whole accesses
      }
      add_codes(cases, {.rows = 1, .columns = 1, .per = per, .to = fp8}, DType::f32);
      add_codes(cases, {.rows = 3, .columns = 17, .per = per, .to = fp8}, DType::bf16);
      add_codes(cases, {.rows = 200, .columns = 1, .per = per, .to = fp8}, DType::f32);
      cases.push_back(case_of(shaped(Fp8Encode{.rows = 300, .columns = 1031, .per = per, .to = fp8}, DType::f32)));
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
  for (const ScalePer per : kPer) add_codes(cases, {.rows = kSide, .columns = kSide, .per = per}, DType::bf16);
  for (const auto& [a, b] : {std::pair{ScalePer::tensor, ScalePer::tensor}, std::pair{ScalePer::row, ScalePer::row},
                             std::pair{ScalePer::tile, ScalePer::block}}) {
    for (const auto& [m, n, k] : {std::tuple{1024, 768, 256}, std::tuple{256, 3072, 768}}) {
      add_products(cases, {.m = m, .n = n, .k = k, .a_per = a, .b_per = b}, DType::bf16, false);
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
