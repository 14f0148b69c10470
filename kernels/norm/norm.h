// LayerNorm and RMSNorm over rows, alone or fused with the residual addition before them.
//   layer: y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(variance + epsilon); Ba, Kiros, Hinton 2016,
//          arXiv:1607.06450, equations 3 and 4
//   rms:   y = x * rstd * gamma,                  rstd = 1 / sqrt(mean(x^2) + epsilon); Zhang, Sennrich 2019,
//          arXiv:1910.07467, equation 4
// Sums are taken in f32. Deterministic: sums over rows go by fixed blocks of rows.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

enum class Norm : std::uint8_t { layer, rms };

// Calls visit(std::integral_constant<Norm, norm>).
template <class Visit>
void with_norm(Norm norm, Visit&& visit) {
  if (norm == Norm::layer) return visit(std::integral_constant<Norm, Norm::layer>{});
  return visit(std::integral_constant<Norm, Norm::rms>{});
}

// The whole norm; or, where several ranks have some columns of each row, its two parts: `sums` adds up what a rank's
// columns contribute to two numbers per row, and when these are summed over the ranks, `rest` does what remains (Xu et
// al. 2021, arXiv:2104.05343, section 3.2.2). A variance from sums of squares loses digits if the mean is far from 0.
// Only on the CPU.
enum class NormPart : std::uint8_t { whole, sums, rest };
constexpr std::int64_t sums_per_row(Norm norm) {
  return norm == Norm::layer ? 2 : 1;
}

// With a residual, sum = x + residual, and the norm is computed of this sum as it was rounded to its dtype. In parts,
// the first one makes this sum.
struct NormForward {
  Norm norm;
  std::int64_t rows;
  std::int64_t columns;
  bool with_residual = false;
  float epsilon = 1e-5F;
  NormPart part = NormPart::whole;
  std::int64_t ranks = 1;  // that have as many columns each
  In x = {};               // [rows, columns]; in `rest` with a residual, the sum
  In residual = {};        // [rows, columns], if with_residual
  In gamma = {};           // [columns]
  In beta = {};            // [columns], LayerNorm only
  Out sum = {};            // [rows, columns], if with_residual
  Out y = {};              // [rows, columns]
  Out mean = {};           // [rows] f32, LayerNorm only
  Out rstd = {};           // [rows] f32
  InOut sums = {};         // [rows, sums_per_row] f32, in parts: of x (LayerNorm only) and of its squares

  std::string_view name() const {
    if (part != NormPart::whole) return part == NormPart::sums ? "norm_sums_fwd" : "norm_rest_fwd";
    if (norm == Norm::layer) return with_residual ? "residual_layernorm_fwd" : "layernorm_fwd";
    return with_residual ? "residual_rmsnorm_fwd" : "rmsnorm_fwd";
  }
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const std::int64_t all = self.rows * self.columns;
    const bool is_layer = self.norm == Norm::layer;
    const bool adds = self.with_residual && self.part != NormPart::rest;
    const bool normalises = self.part != NormPart::sums;
    visit("x", self.x, all, kActivations);
    const DTypes same(self.x.dtype);
    if (adds) visit("residual", self.residual, all, same);
    if (normalises) visit("gamma", self.gamma, self.columns, same);
    if (normalises && is_layer) visit("beta", self.beta, self.columns, same);
    if (adds) visit("sum", self.sum, all, same);
    if (self.part != NormPart::whole) visit("sums", self.sums, sums_per_row(self.norm) * self.rows, kF32);
    if (!normalises) return;
    visit("y", self.y, all, same);
    if (is_layer) visit("mean", self.mean, self.rows, kF32);
    visit("rstd", self.rstd, self.rows, kF32);
  }
};

// dx is the gradient through y plus, with a residual, the gradient that reaches the sum past the norm (dsum); it is
// then the gradient of both x and the residual. Adds to the parameter gradients already there, because gradients
// accumulate over microbatches.
struct NormBackward {
  static constexpr std::array kInPlace{InPlace{"dx", "dy"}, InPlace{"dx", "dsum"}};
  Norm norm;
  std::int64_t rows;
  std::int64_t columns;
  bool with_residual = false;
  NormPart part = NormPart::whole;  // the first one makes the parameter gradients
  std::int64_t ranks = 1;           // that have as many columns each
  In dy = {};                       // [rows, columns]
  In dsum = {};                     // [rows, columns], if with_residual
  In x = {};                        // [rows, columns]: the norm's input; with a residual, the sum
  In gamma = {};                    // [columns]
  In mean = {};                     // [rows] f32, LayerNorm only
  In rstd = {};                     // [rows] f32
  Out dx = {};                      // [rows, columns], may be dy or dsum
  InOut dgamma = {};                // [columns] f32
  InOut dbeta = {};                 // [columns] f32, LayerNorm only
  // [rows, sums_per_row] f32, in parts: of the gradient of the normalised x (LayerNorm only), and of its product with
  // it
  InOut sums = {};

  std::string_view name() const {
    if (part != NormPart::whole) return part == NormPart::sums ? "norm_sums_bwd" : "norm_rest_bwd";
    if (norm == Norm::layer) return with_residual ? "residual_layernorm_bwd" : "layernorm_bwd";
    return with_residual ? "residual_rmsnorm_bwd" : "rmsnorm_bwd";
  }
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const std::int64_t all = self.rows * self.columns;
    visit("dy", self.dy, all, kActivations);
    const DTypes same(self.dy.dtype);
    const bool makes_dx = self.part != NormPart::sums;
    if (self.with_residual && makes_dx) visit("dsum", self.dsum, all, same);
    visit("x", self.x, all, same);
    visit("gamma", self.gamma, self.columns, same);
    if (self.norm == Norm::layer) visit("mean", self.mean, self.rows, kF32);
    visit("rstd", self.rstd, self.rows, kF32);
    if (self.part != NormPart::whole) visit("sums", self.sums, sums_per_row(self.norm) * self.rows, kF32);
    if (makes_dx) visit("dx", self.dx, all, same);
    if (self.part == NormPart::rest) return;
    visit("dgamma", self.dgamma, self.columns, kF32);
    if (self.norm == Norm::layer) visit("dbeta", self.dbeta, self.columns, kF32);
  }
};

Cost cost_of(const NormForward& args);
Cost cost_of(const NormBackward& args);

void run_cpu(const NormForward& args, ThreadPool& pool);
void run_cpu(const NormBackward& args, ThreadPool& pool);
void run_cuda(const NormForward& args, CudaContext& cuda);
void run_cuda(const NormBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
