// The parts of which lists of operations are made (operations.cpp): the sizes of one rank's share, and products, norms
// and exchanges of that size.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "workload/operations.h"

namespace lockstep::workload {

// The sizes of one rank's part, with the letters of the papers.
struct Sizes {
  Sizes(const Model& m, const Layout& l, std::int64_t earlier_tokens = 0)
      : model(m),
        layout(l),
        all_keys(m.sequence + earlier_tokens),
        sequence_parallel(l.sequence_parallel && l.tp > 1),
        fused(!m.dropout),
        element(static_cast<double>(core::size_of(l.compute))),
        tensor(l.tp),
        tokens(tokens_of(m, l)),
        rows(rows_of(m, l)),
        hidden(static_cast<double>(m.hidden)),
        queries(static_cast<double>(m.heads * m.head_size) / tensor),
        keys(static_cast<double>(m.kv_heads * m.head_size) / tensor),
        ffn(static_cast<double>(m.ffn_hidden) / tensor),
        head_size(static_cast<double>(m.head_size)),
        scores(static_cast<double>(m.heads) / tensor * tokens * static_cast<double>(all_keys)) {}

  const Model& model;
  const Layout& layout;
  std::int64_t all_keys;  // keys per sequence to which its queries attend
  bool sequence_parallel;
  bool fused;      // this library's kernels; otherwise Megatron-LM's
  double element;  // bytes per activation
  double tensor;   // t
  double tokens;   // s b: within tensor-parallel parts
  double rows;     // between them: s b, or s b / t with sequence parallelism
  double hidden;   // h
  double queries;  // columns of the queries on this rank: h / t
  double keys;     // columns of the keys, and of the values
  double ffn;
  double head_size;
  double scores;  // elements, a s s b / t

  double key_rows() const { return tokens * static_cast<double>(all_keys) / static_cast<double>(model.sequence); }
};

inline std::int64_t whole(double size) {
  return std::llround(size);
}

inline KernelCall other(const Sizes& at, KernelClass of, double flops, double bytes) {
  return {OtherKernel{of, at.layout.compute, flops, bytes}, 1};
}

inline Operation pass(OperationKind kind, const Sizes& at, double forward_bytes, double backward_bytes, double kept) {
  Operation op{.kind = kind};
  op.forward = {other(at, KernelClass::pass, 0, forward_bytes)};
  if (backward_bytes > 0) op.input_gradient = {other(at, KernelClass::pass, 0, backward_bytes)};
  op.kept_bytes = kept;
  return op;
}

// How a product's neighbours are fused with it.
struct Fused {
  kernels::Epilogue epilogue = kernels::Epilogue::none;
  bool through_gelu = false;  // backward: its input is the output of a GELU
};

// Products in 8-bit floats, if the layout has them: not the router's and the vocabulary's.
inline bool is_of_layer(OperationKind kind) {
  return kind != OperationKind::router && kind != OperationKind::logits;
}

// `count` products of rows x inputs by inputs x outputs. The weight gradient is accumulated.
inline Operation product(OperationKind kind, const Sizes& at, double rows, double outputs, double inputs, double count,
                         const Fused& fused = {}) {
  const kernels::GemmShape shape{whole(rows), whole(inputs), whole(outputs)};
  const core::DType dtype = at.layout.compute;
  const bool bias = at.fused && at.model.biases && kind != OperationKind::logits;
  Operation op{.kind = kind};
  if (const auto recipe = fp8_recipe_of(at.layout); recipe && is_of_layer(kind)) {
    const kernels::Fp8Linear linear{shape, *recipe};
    const auto calls = [&](const kernels::Fp8Encode& a, const kernels::Fp8Encode& b, const auto& multiply) {
      return std::vector{kernel_call(a, dtype, count), kernel_call(b, dtype, count),
                         kernel_call(multiply, dtype, count)};
    };
    const bool adds_bias = fused.epilogue == kernels::Epilogue::bias;
    op.forward = calls(linear.x(), linear.w(), linear.forward(adds_bias));
    op.input_gradient = calls(linear.dy(), linear.w_transposed(), linear.input_gradient());
    op.weight_gradient = calls(linear.dy_transposed(), linear.x_transposed(), linear.weight_gradient(bias));
  } else {
    op.forward = {kernel_call(kernels::GemmForward{.shape = shape, .epilogue = fused.epilogue}, dtype, count)};
    op.input_gradient = {
        kernel_call(kernels::GemmInputGradient{.shape = shape, .through_gelu = fused.through_gelu}, dtype, count)};
    op.weight_gradient = {kernel_call(kernels::GemmWeightGradient{.shape = shape, .with_bias = bias}, dtype, count)};
  }
  op.kept_bytes = at.element * count * rows * inputs;
  op.later_bytes = at.element * count * rows * (inputs + outputs);
  return op;
}

inline kernels::Epilogue bias_of(const Sizes& at) {
  return at.fused && at.model.biases ? kernels::Epilogue::bias : kernels::Epilogue::none;
}

// A product whose input comes from enter(): with sequence parallelism it is kept in parts.
inline Operation entered_product(OperationKind kind, const Sizes& at, double rows, double outputs, double count,
                                 const Fused& fused = {}) {
  Operation op = product(kind, at, rows, outputs, at.hidden, count, fused);
  if (!at.sequence_parallel) return op;
  const double gathered = op.kept_bytes;
  op.kept_bytes = gathered / at.tensor;
  op.later_bytes -= gathered - op.kept_bytes;
  op.regather = {schedules::Comm::all_gather, schedules::GroupKind::tensor, gathered};
  return op;
}

// A product whose output goes into leave(): with sequence parallelism its gradient is kept in parts.
inline Operation left_product(OperationKind kind, const Sizes& at, double rows, double inputs, double count,
                              const Fused& fused = {}) {
  Operation op = product(kind, at, rows, at.hidden, inputs, count, fused);
  if (at.sequence_parallel && at.fused) op.later_bytes -= at.element * count * rows * at.hidden * (1 - 1 / at.tensor);
  return op;
}

inline Operation exchange(OperationKind kind, schedules::GroupKind group, schedules::Comm forward,
                          schedules::Comm backward, double bytes) {
  Operation op{.kind = kind};
  op.forward_exchange = {forward, group, forward == schedules::Comm::none ? 0 : bytes};
  op.backward_exchange = {backward, group, backward == schedules::Comm::none ? 0 : bytes};
  return op;
}

// Enters a tensor-parallel part; leave() leaves it (Shoeybi et al. 2019, arXiv:1909.08053, f and g; with sequence
// parallelism Korthikanti et al. 2022, arXiv:2205.05198, g and g bar).
inline void enter(OperationKind kind, std::vector<Operation>& ops, const Sizes& at, double tokens) {
  if (at.tensor == 1) return;
  const schedules::Comm forward = at.sequence_parallel ? schedules::Comm::all_gather : schedules::Comm::none;
  const schedules::Comm backward = at.sequence_parallel ? schedules::Comm::reduce_scatter : schedules::Comm::all_reduce;
  ops.push_back(exchange(kind, schedules::GroupKind::tensor, forward, backward, at.element * tokens * at.hidden));
}
inline void leave(OperationKind kind, std::vector<Operation>& ops, const Sizes& at, double tokens) {
  if (at.tensor == 1) return;
  const schedules::Comm forward = at.sequence_parallel ? schedules::Comm::reduce_scatter : schedules::Comm::all_reduce;
  const schedules::Comm backward = at.sequence_parallel ? schedules::Comm::all_gather : schedules::Comm::none;
  ops.push_back(exchange(kind, schedules::GroupKind::tensor, forward, backward, at.element * tokens * at.hidden));
}

inline kernels::Norm norm_of(const Model& model) {
  return model.norm == Norm::layer ? kernels::Norm::layer : kernels::Norm::rms;
}

// Bytes of the mean and 1 / deviation of each row.
inline double statistics_bytes(const Sizes& at) {
  return at.rows * 4 * (at.model.norm == Norm::layer ? 2 : 1);
}

// Reads x, writes y. Backward: reads x, dy and the residual's gradient, writes dx. With `of_sum` it includes the
// preceding residual addition, with `with_residual` the residual's gradient.
inline Operation norm(OperationKind kind, const Sizes& at, bool of_sum, bool with_residual) {
  const double x = at.element * at.rows * at.hidden;
  if (!at.fused) return pass(kind, at, 2 * x, 4 * x, x);
  const core::DType dtype = at.layout.compute;
  Operation op{.kind = kind};
  op.forward = {kernel_call(
      kernels::NormForward{
          .norm = norm_of(at.model), .rows = whole(at.rows), .columns = at.model.hidden, .with_residual = of_sum},
      dtype)};
  op.input_gradient = {kernel_call(kernels::NormBackward{.norm = norm_of(at.model),
                                                         .rows = whole(at.rows),
                                                         .columns = at.model.hidden,
                                                         .with_residual = with_residual},
                                   dtype)};
  op.kept_bytes = x + statistics_bytes(at);
  return op;
}

// Dropout and the residual: reads both, writes the sum and a mask of bytes. Without dropout only the last one of a
// layer is a kernel of its own.
inline void residual(OperationKind kind, std::vector<Operation>& ops, const Sizes& at) {
  const double elements = at.rows * at.hidden;
  if (!at.fused) {
    ops.push_back(pass(kind, at, (3 * at.element + 1) * elements, (2 * at.element + 1) * elements, elements));
    ops.back().keeps_output = true;
  } else if (kind == OperationKind::mlp_residual) {
    Operation op{.kind = kind};
    op.forward = {kernel_call(kernels::ResidualAdd{.count = whole(elements)}, at.layout.compute)};
    ops.push_back(op);
  }
}

}  // namespace lockstep::workload
