// Optimizer steps over a flat shard of parameters, the global norm of gradients, and the check for overflow.
// Weights in f32 are updated in place; with narrow weights (bf16, f16) the f32 master is updated and its rounded copy
// written in the same pass. Deterministic. Gradients that are NaN or infinite make the weights NaN or infinite, unless
// the clip factor is made from their norm: it is then not a positive number, and nothing is changed (ClipFactor). A
// step is thus skipped without any rank having to read the norm back from the device.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

inline constexpr DTypes kGradients{core::DType::f32, core::DType::bf16, core::DType::f16};
inline constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_

// Numbers that change from step to step: rate, 1 - beta1^step, 1 - beta2^step. Steps count from 1.
inline constexpr std::int64_t kAdamWSchedule = 3;
std::array<float, kAdamWSchedule> adamw_schedule(float rate, float beta1, float beta2, std::int64_t step);

// AdamW: Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2, with the bias correction of Kingma, Ba 2015,
// arXiv:1412.6980, algorithm 1. g = grad * (grad_scale * clip); m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
// w -= rate * (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + epsilon) + decay * w).
struct AdamW {
  std::int64_t count;
  bool narrow_weights = false;
  bool scheduled = false;  // read `schedule` instead of `rate` and `step`, so that captured work runs with new numbers
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float decay = 0;
  std::int64_t step = 1;  // counts from 1
  float grad_scale = 1;
  In grad = {};  // [count] f32, bf16 or f16
  // [1] f32: a factor for all gradients that the device has computed (ClipFactor). If it is not positive, or NaN,
  // nothing changes.
  In clip = {};
  In schedule = {};   // [kAdamWSchedule] f32, if scheduled: adamw_schedule()
  InOut master = {};  // [count] f32: the weights themselves, or their master copy
  InOut m = {};       // [count] f32
  InOut v = {};       // [count] f32
  Out weights = {};   // [count] bf16 or f16, if narrow_weights

  std::string_view name() const { return "adamw"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("grad", self.grad, self.count, kGradients);
    visit("clip", self.clip, std::int64_t{1}, kF32);
    if (self.scheduled) visit("schedule", self.schedule, kAdamWSchedule, kF32);
    visit("master", self.master, self.count, kF32);
    visit("m", self.m, self.count, kF32);
    visit("v", self.v, self.count, kF32);
    if (self.narrow_weights) visit("weights", self.weights, self.count, DTypes{core::DType::bf16, core::DType::f16});
  }
};

// momentum = mu * momentum + g + decay * w; w -= rate * momentum. Sutskever, Martens, Dahl, Hinton 2013, section 2, in
// PyTorch's form (torch.optim.SGD: the rate is not part of the velocity).
struct SgdMomentum {
  std::int64_t count;
  bool narrow_weights = false;
  float rate = 1e-2F;
  float mu = 0.9F;
  float decay = 0;
  float grad_scale = 1;
  In grad = {};         // [count] f32, bf16 or f16
  In clip = {};         // [1] f32, as in AdamW
  InOut master = {};    // [count] f32
  InOut momentum = {};  // [count] f32
  Out weights = {};     // [count] bf16 or f16, if narrow_weights

  std::string_view name() const { return "sgd_momentum"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("grad", self.grad, self.count, kGradients);
    visit("clip", self.clip, std::int64_t{1}, kF32);
    visit("master", self.master, self.count, kF32);
    visit("momentum", self.momentum, self.count, kF32);
    if (self.narrow_weights) visit("weights", self.weights, self.count, DTypes{core::DType::bf16, core::DType::f16});
  }
};

// sum = sum over i of x[i]^2: f32 partial sums of fixed pieces, added in f64. For several shards, add their sums.
// Overflow, infinity and NaN show in the sum, so it also serves as the loss scaler's check.
struct SumOfSquares {
  std::int64_t count;
  In x = {};     // [count] f32, bf16 or f16
  Out sum = {};  // [1] f64

  std::string_view name() const { return "sum_of_squares"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kGradients);
    visit("sum", self.sum, std::int64_t{1}, DTypes(core::DType::f64));
  }
};

// norm = grad_scale * sqrt(sum of sums); factor = grad_scale * min(1, most / (norm + kClipEpsilon)), like
// torch.nn.utils.clip_grad_norm_ for gradients times grad_scale (with loss scaling: its inverse). Computed in f64 and
// rounded once. A NaN norm makes the factor NaN, an infinite one makes it 0: optimizers then change nothing.
struct ClipFactor {
  std::int64_t shards;   // number of sums of squares to add
  float most;            // maximum norm
  float grad_scale = 1;  // not negative; 0: no step changes anything
  In sums = {};          // [shards] f64
  Out factor = {};       // [1] f32
  Out norm = {};         // [1] f32

  std::string_view name() const { return "clip_factor"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("sums", self.sums, self.shards, DTypes(core::DType::f64));
    visit("factor", self.factor, std::int64_t{1}, kF32);
    visit("norm", self.norm, std::int64_t{1}, kF32);
  }
};

// finite = 1 if all of x is finite, else 0. For scaled f16 gradients, before they are used.
struct FiniteCheck {
  std::int64_t count;
  In x = {};        // [count] f32, bf16 or f16
  Out finite = {};  // [1] i32

  std::string_view name() const { return "finite_check"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kGradients);
    visit("finite", self.finite, std::int64_t{1}, kI32);
  }
};

// FLOPs per element: AdamW 17, SgdMomentum 7, SumOfSquares 2, FiniteCheck 0; AdamW and SgdMomentum one more for
// grad_scale * clip. ClipFactor: shards + 3 in total.
Cost cost_of(const AdamW& args);
Cost cost_of(const SgdMomentum& args);
Cost cost_of(const SumOfSquares& args);
Cost cost_of(const ClipFactor& args);
Cost cost_of(const FiniteCheck& args);

void run_cpu(const AdamW& args, ThreadPool& pool);
void run_cpu(const SgdMomentum& args, ThreadPool& pool);
void run_cpu(const SumOfSquares& args, ThreadPool& pool);
void run_cpu(const ClipFactor& args, ThreadPool& pool);
void run_cpu(const FiniteCheck& args, ThreadPool& pool);
void run_cuda(const AdamW& args, CudaContext& cuda);
void run_cuda(const SgdMomentum& args, CudaContext& cuda);
void run_cuda(const SumOfSquares& args, CudaContext& cuda);
void run_cuda(const ClipFactor& args, CudaContext& cuda);
void run_cuda(const FiniteCheck& args, CudaContext& cuda);

}  // namespace lockstep::kernels
