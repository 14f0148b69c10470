#include "kernels/gemm/gemm_arguments.h"

#include <tuple>

namespace lockstep::kernels {
namespace {

Factor transposed(const In& x, std::int64_t columns) {
  return {x.data, x.dtype, 1, columns};
}

}  // namespace

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
  product.a.batch_stride = m * k;
  product.b.batch_stride = k * n;
  product.c.batch_stride = m * n;
  product.c.alpha = args.alpha;
  return product;
}

}  // namespace lockstep::kernels
