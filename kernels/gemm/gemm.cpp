#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "kernels/activation/activation.h"
#include "kernels/base/context.h"
#include "kernels/gemm/gemm_choice.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {
namespace {

double product_flops(const GemmShape& shape) {
  return 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
}

Factor transposed(const In& x, std::int64_t columns) {
  return {x.data, x.dtype, 1, columns};
}

template <class Args>
std::string chosen_for(const Args& args, const Context& where) {
  return where.on_cpu() ? GemmChoice::of(where.pool()).chosen(product_of(args)) : "";
}

}  // namespace

void GemmShape::check(std::string_view kernel) const {
  check_sizes(kernel, {{"rows", rows}, {"inputs", inputs}, {"outputs", outputs}});
}

void GemmBatched::check_shape() const {
  check_sizes(name(), {{"batch", batch}, {"m", m}, {"n", n}, {"k", k}});
  if (adds && alpha != 1) throw core::usage_error(fmt::format("{}: alpha is {:g}; allowed: 1", name(), alpha));
}

Cost cost_of(const GemmForward& args) {
  const std::int64_t elems = args.shape.rows * args.shape.outputs;
  double flops = product_flops(args.shape);
  if (args.epilogue != Epilogue::none) flops += static_cast<double>(elems);
  if (args.epilogue == Epilogue::bias_gelu) flops += cost_of(GeluForward{.count = elems}).flops;
  return cost_of_operands(flops, args);
}

Cost cost_of(const GemmInputGradient& args) {
  double flops = product_flops(args.shape);
  if (args.through_gelu) flops += cost_of(GeluBackward{.count = args.shape.rows * args.shape.inputs}).flops;
  return cost_of_operands(flops, args);
}

Cost cost_of(const GemmWeightGradient& args) {
  double flops = product_flops(args.shape);
  if (args.with_bias) flops += static_cast<double>(args.shape.rows * args.shape.outputs);
  return cost_of_operands(flops, args);
}

Cost cost_of(const GemmBatched& args) {
  const double results = static_cast<double>(args.batch * args.m) * static_cast<double>(args.n);
  return cost_of_operands(results * (2.0 * static_cast<double>(args.k) + 1), args);
}

Factor rows_of(const In& x, std::int64_t columns) {
  return {x.data, x.dtype, columns, 1};
}

Product product_of(const GemmForward& args) {
  const auto& [rows, inputs, outputs] = args.shape;
  Product product{.m = rows,
                  .n = outputs,
                  .k = inputs,
                  .a = rows_of(args.x, inputs),
                  .b = transposed(args.w, inputs),
                  .c = {args.y.data, args.y.dtype, outputs}};
  if (args.epilogue == Epilogue::none) return product;
  product.c.finish = args.epilogue == Epilogue::bias ? Finish::bias : Finish::bias_gelu;
  product.c.bias = args.bias.data;
  product.c.pre_written = args.pre.data;
  return product;
}

Product product_of(const GemmInputGradient& args) {
  const auto& [rows, inputs, outputs] = args.shape;
  Product product{.m = rows,
                  .n = inputs,
                  .k = outputs,
                  .a = rows_of(args.dy, outputs),
                  .b = rows_of(args.w, inputs),
                  .c = {args.dx.data, args.dx.dtype, inputs}};
  if (!args.through_gelu) return product;
  product.c.finish = Finish::times_gelu_slope;
  product.c.pre_read = args.pre.data;
  return product;
}

Product product_of(const GemmWeightGradient& args) {
  const auto& [rows, inputs, outputs] = args.shape;
  Product product{.m = outputs,
                  .n = inputs,
                  .k = rows,
                  .a = transposed(args.dy, outputs),
                  .b = rows_of(args.x, inputs),
                  .c = {args.dw.data, args.dw.dtype, inputs}};
  product.c.finish = Finish::add;
  return product;
}

Product product_of(const GemmBatched& args) {
  const auto& [m, n, k] = std::tie(args.m, args.n, args.k);
  Product product{.batch = args.batch,
                  .m = m,
                  .n = n,
                  .k = k,
                  .a = args.transpose_a ? transposed(args.a, m) : rows_of(args.a, k),
                  .b = args.transpose_b ? transposed(args.b, k) : rows_of(args.b, n),
                  .c = {args.c.data, args.c.dtype, n}};
  if (args.adds) product.c = {.data = args.sum.data, .dtype = args.sum.dtype, .row_stride = n, .finish = Finish::add};
  product.a.batch_stride = m * k;
  product.b.batch_stride = k * n;
  product.c.batch_stride = m * n;
  product.c.alpha = args.alpha;
  return product;
}

void choose_gemms_by_rule(const Context& where, std::string_view first) {
  if (where.on_cpu()) GemmChoice::of(where.pool()).choose_by_rule(first);
}

std::string implementation_of(const GemmForward& args, const Context& where) {
  return chosen_for(args, where);
}

std::string implementation_of(const GemmInputGradient& args, const Context& where) {
  return chosen_for(args, where);
}

std::string implementation_of(const GemmWeightGradient& args, const Context& where) {
  return chosen_for(args, where);
}

std::string implementation_of(const GemmBatched& args, const Context& where) {
  return chosen_for(args, where);
}

void run_cpu(const GemmForward& args, ThreadPool& pool) {
  GemmChoice::of(pool).run(product_of(args), pool);
}

void run_cpu(const GemmInputGradient& args, ThreadPool& pool) {
  GemmChoice::of(pool).run(product_of(args), pool);
}

void run_cpu(const GemmWeightGradient& args, ThreadPool& pool) {
  GemmChoice::of(pool).run(product_of(args), pool);
  if (!args.with_bias) return;
  const auto& [rows, inputs, outputs] = args.shape;
  add_column_sums(rows_of(args.dy, outputs), rows, outputs, args.dbias.as<float>(), pool);
}

void run_cpu(const GemmBatched& args, ThreadPool& pool) {
  GemmChoice::of(pool).run(product_of(args), pool);
}

namespace {

// Returns the transpose of a [rows, columns] factor. A matrix of one column may have any stride, but cuBLASLt requires
// at least its number of rows.
ColumnMatrix transpose_by_columns(const Factor& factor, std::int64_t rows, std::int64_t columns) {
  const bool by_rows = factor.column_stride == 1;
  ColumnMatrix seen{};
  seen.rows = by_rows ? columns : rows;
  seen.columns = by_rows ? rows : columns;
  seen.leading = std::max(by_rows ? factor.row_stride : factor.column_stride, seen.rows);
  seen.batch_stride = factor.batch_stride;
  seen.transposed = !by_rows;
  return seen;
}

}  // namespace

ColumnProduct in_columns(const Product& p) {
  return {.first = transpose_by_columns(p.b, p.k, p.n),
          .second = transpose_by_columns(p.a, p.m, p.k),
          .result = {.rows = p.n,
                     .columns = p.m,
                     .leading = std::max(p.c.row_stride, p.n),
                     .batch_stride = p.c.batch_stride,
                     .transposed = false}};
}

std::uint32_t alignment_bytes(const void* address) {
  constexpr std::uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | kMost;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

int choose_algorithm(std::span<const double> times_us) {
  constexpr double kEqual = 1.02;
  if (times_us.empty()) return -1;
  const double best_us = *std::min_element(times_us.begin(), times_us.end());
  if (!std::isfinite(best_us)) return -1;
  const auto first = std::find_if(times_us.begin(), times_us.end(), [&](double us) { return us <= best_us * kEqual; });
  return static_cast<int>(first - times_us.begin());
}

}  // namespace lockstep::kernels
