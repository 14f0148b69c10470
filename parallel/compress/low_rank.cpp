#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/random.h"
#include "kernels/copy/copy.h"
#include "kernels/gemm/gemm.h"
#include "parallel/compress/compress.h"

namespace lockstep::parallel {
namespace {

using core::DType;
using workload::MatrixShape;

// Orthonormalises rows of equal length by Gram-Schmidt, in their order. A row whose remainder is no longer than
// rounding errors becomes zero.
void orthonormalise(std::span<float> rows, std::int64_t columns) {
  constexpr double kLeft = 1e-6;
  const auto length = static_cast<std::size_t>(columns);
  const auto product = [](std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
    return sum;
  };
  for (std::size_t begin = 0; begin < rows.size(); begin += length) {
    const std::span<float> row = rows.subspan(begin, length);
    const double before = std::sqrt(product(row, row));
    for (std::size_t other = 0; other < begin; other += length) {
      const std::span<const float> earlier = rows.subspan(other, length);
      const double along = product(row, earlier);
      for (std::size_t i = 0; i < length; ++i) row[i] = static_cast<float>(row[i] - along * earlier[i]);
    }
    const double norm = std::sqrt(product(row, row));
    const double factor = norm <= kLeft * before ? 0 : 1 / norm;
    for (float& x : row) x = static_cast<float>(x * factor);
  }
}

// M is the sum over ranks: P = M Q, orthonormalised; Q = M^T P; the result is P Q^T. Two small all-reduces; the next
// call starts with this call's Q. P and Q are stored by columns: [rank, rows] and [rank, columns].
class LowRankAllReduce final : public collectives::Collective {
 public:
  using Inner = std::unique_ptr<collectives::Collective>;
  LowRankAllReduce(const GradientReduction& reduction, Inner of_p, Inner of_q, Memory& memory,
                   const kernels::Context& where)
      : elems_(reduction.elems),
        shape_(reduction.elems, reduction.compression.rank),
        mean_of_(static_cast<float>(reduction.num_ranks)),
        is_average_(reduction.op == core::ReduceOp::avg),
        seed_(reduction.seed),
        state_(*reduction.state),
        of_p_(std::move(of_p)),
        of_q_(std::move(of_q)),
        where_(where),
        matrix_(memory.make_zeroed(MemoryKind::buffers, DType::f32, shape_.elems())),
        p_(memory.make(MemoryKind::buffers, DType::f32, shape_.rank * shape_.rows)),
        q_(memory.make(MemoryKind::buffers, DType::f32, shape_.rank * shape_.columns)) {
    state_.keep(q_.inout());
    if (reduction.compression.feedback) owed_.emplace(elems_, state_, memory, where);
  }

  void run(const void* input, void* output) override {
    take({input, DType::f32, elems_});
    if (state_.calls == 0) draw_q();
    multiply(false);
    of_p_->run(p_.data(), p_.data());
    orthonormalise({p_.as<float>(), static_cast<std::size_t>(p_.elems())}, shape_.rows);
    multiply(true);
    of_q_->run(q_.data(), q_.data());
    result(output);
    ++state_.calls;
  }

 private:
  void copy(const kernels::In& from, const kernels::Out& to) {
    kernels::CopyRows copy{1, from.elems};
    copy.from = from;
    copy.to = to;
    kernels::run(copy, where_);
  }
  void take(const kernels::In& x) {
    if (owed_) owed_->add(x);
    copy(owed_ ? owed_->owed().in() : x, matrix_.out(0, elems_));
  }
  void draw_q() {
    auto* const q = q_.as<float>();
    for (std::int64_t i = 0; i < q_.elems(); ++i) {
      const std::uint64_t bits = core::hash64(seed_, static_cast<std::uint64_t>(i));
      q[i] = static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5);
    }
  }
  // Computes p = q M^T, or q = p M.
  void multiply(bool transposed) {
    kernels::GemmBatched product{1, shape_.rank, shape_.rows, shape_.columns};
    product.transpose_b = !transposed;
    if (transposed) std::swap(product.n, product.k);
    product.a = transposed ? p_.in() : q_.in();
    product.b = matrix_.in();
    product.c = transposed ? q_.out() : p_.out();
    kernels::run(product, where_);
  }
  // Each rank's pending error is its matrix minus the mean result; over all ranks these sum to the error of the sum.
  void result(void* output) {
    kernels::GemmBatched product{1, shape_.rows, shape_.columns, shape_.rank};
    product.transpose_a = true;
    product.alpha = is_average_ ? 1 / mean_of_ : 1;
    product.a = p_.in();
    product.b = q_.in();
    product.c = matrix_.out();
    kernels::run(product, where_);
    if (owed_) owed_->take_off(0, matrix_.in(0, elems_), is_average_ ? 1 : 1 / mean_of_);
    copy(matrix_.in(0, elems_), {output, DType::f32, elems_});
    auto* const rest = matrix_.as<float>();
    std::fill(rest + elems_, rest + shape_.elems(), 0.0F);
  }

  const std::int64_t elems_;
  const MatrixShape shape_;
  const float mean_of_;
  const bool is_average_;
  const std::uint64_t seed_;
  CompressionState& state_;
  const Inner of_p_;  // in place, as is the other
  const Inner of_q_;
  const kernels::Context where_;
  const Tensor matrix_;  // [rows, columns]: this rank's matrix, then the result
  const Tensor p_;
  const Tensor q_;
  std::optional<ErrorFeedback> owed_;
};

}  // namespace

backends::Prepared prepare_low_rank(const GradientReduction& reduction, const PrepareCollective& prepare,
                                    Memory& memory, const kernels::Context& where) {
  const MatrixShape shape(reduction.elems, reduction.compression.rank);
  collectives::Operation operation;
  operation.in_place = true;
  operation.count = shape.rank * shape.rows;
  backends::Prepared of_p = prepare(operation, reduction.algorithm);
  operation.count = shape.rank * shape.columns;
  backends::Prepared of_q = prepare(operation, reduction.algorithm);
  auto collective = std::make_unique<LowRankAllReduce>(reduction, std::move(of_p.collective),
                                                       std::move(of_q.collective), memory, where);
  return {std::move(collective), of_p.algorithm + "+powersgd", of_p.executor, std::nullopt};
}

}  // namespace lockstep::parallel
