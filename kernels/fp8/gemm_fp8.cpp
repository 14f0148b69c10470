#include "kernels/fp8/gemm_fp8.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "kernels/gemm/gemm_choice.h"

namespace lockstep::kernels {
namespace {

// Decoded factors, in their own memory, because products use the pool's.
struct DecodedFactors {
  explicit DecodedFactors(int /*num_threads*/) {}
  std::array<std::vector<std::byte>, 2> memory;
};

In decoded(std::vector<std::byte>& memory, Fp8Decode codes, core::DType dtype, ThreadPool& pool) {
  memory.resize(std::max(memory.size(), size_bytes(dtype, codes.codes.elems)));
  codes.y = {memory.data(), dtype, codes.codes.elems};
  run_cpu(codes, pool);
  return {codes.y.data, dtype, codes.y.elems};
}

struct Factors {
  In a;
  In b;
};
template <class Args>
Factors decoded_factors(const Args& args, core::DType dtype, ThreadPool& pool) {
  auto& [a, b] = pool.kept<DecodedFactors>().memory;
  return {decoded(a, decode_of_a(args), dtype, pool), decoded(b, decode_of_b(args), dtype, pool)};
}

double product_flops(const Fp8Product& shape) {
  const auto results = static_cast<double>(shape.m) * static_cast<double>(shape.n);
  const auto blocks = static_cast<double>(shape.grid_of_a().across());
  return results * (2 * static_cast<double>(shape.k) + 3 * blocks);
}

}  // namespace

void Fp8Product::check(std::string_view kernel) const {
  check_sizes(kernel, {{"m", m}, {"n", n}, {"k", k}});
  if (!kFp8.contains(a_type) || !kFp8.contains(b_type)) {
    throw core::usage_error(std::string(kernel) + ": factors are " + std::string(core::name_of(a_type)) + " and " +
                            std::string(core::name_of(b_type)) + "; allowed: f8e4m3, f8e5m2");
  }
  if (grid_of_a().block_columns != grid_of_b().block_columns) {
    throw core::usage_error(std::string(kernel) + ": scales per " + std::string(name_of(a_per)) + " and per " +
                            std::string(name_of(b_per)) + "; allowed: both of tensor, row, or both of tile, block");
  }
}

Cost cost_of(const GemmFp8& args) {
  const double bias = args.with_bias ? static_cast<double>(args.shape.m * args.shape.n) : 0;
  return cost_of_operands(product_flops(args.shape) + bias, args);
}

Cost cost_of(const GemmFp8Add& args) {
  const double bias = args.with_bias ? static_cast<double>(args.shape.k * args.shape.m) : 0;
  return cost_of_operands(product_flops(args.shape) + bias, args);
}

Product product_of(const GemmFp8& args, const In& a, const In& b) {
  const auto& [m, n, k] = std::tie(args.shape.m, args.shape.n, args.shape.k);
  Product product{
      .m = m, .n = n, .k = k, .a = rows_of(a, k), .b = {b.data, b.dtype, 1, k}, .c = {args.y.data, args.y.dtype, n}};
  if (!args.with_bias) return product;
  product.c.finish = Finish::bias;
  product.c.bias = args.bias.data;
  return product;
}

Product product_of(const GemmFp8Add& args, const In& a, const In& b) {
  const auto& [m, n, k] = std::tie(args.shape.m, args.shape.n, args.shape.k);
  Product product{
      .m = m, .n = n, .k = k, .a = rows_of(a, k), .b = {b.data, b.dtype, 1, k}, .c = {args.dw.data, args.dw.dtype, n}};
  product.c.finish = Finish::add;
  return product;
}

void run_cpu(const GemmFp8& args, ThreadPool& pool) {
  const Factors factors = decoded_factors(args, args.y.dtype, pool);
  GemmChoice::of(pool).run(product_of(args, factors.a, factors.b), pool);
}

void run_cpu(const GemmFp8Add& args, ThreadPool& pool) {
  const Factors factors = decoded_factors(args, core::DType::f32, pool);
  GemmChoice::of(pool).run(product_of(args, factors.a, factors.b), pool);
  if (!args.with_bias) return;
  const Fp8Product& s = args.shape;
  add_column_sums(rows_of(args.dy, s.m), s.k, s.m, args.dbias.as<float>(), pool);
}

}  // namespace lockstep::kernels
