// Optimizer steps over a flat shard of parameters, the global norm of gradients, and the check for overflow.
// Weights in f32 are updated in place; with narrow weights (bf16, f16) the f32 master is updated and its rounded copy
// written in the same pass. Deterministic. Gradients that are NaN or infinite make the weights NaN or infinite, unless
// the clip factor is made from their norm: it is then not a positive number, and nothing is changed (ClipFactor). A
// step is thus skipped without any rank having to read the norm back from the device.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"
#include "kernels/optimizer/rules.h"

namespace lockstep::kernels {

class CudaContext;

inline constexpr DTypes kGradients{core::DType::f32, core::DType::bf16, core::DType::f16};
inline constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_

// Factors that undo the bias of moments that begin at 0 (rules.h); 1 for rules that do not correct it. Steps count
// from 1.
struct BiasCorrections {
  double first = 1;
  double second = 1;
};
BiasCorrections bias_corrections(OptimizerKind kind, const OptimizerNumbers& numbers, std::int64_t step);

// Numbers that change from step to step: rate and both corrections.
inline constexpr std::int64_t kOptimizerSchedule = 3;
std::array<float, kOptimizerSchedule> optimizer_schedule(OptimizerKind kind, const OptimizerNumbers& numbers,
                                                         std::int64_t step);

// One step of an optimizer (rules.h), whose gradient is grad * (grad_scale * clip).
struct OptimizerStep {
  std::int64_t count;
  OptimizerKind kind = OptimizerKind::adamw;
  bool narrow_weights = false;
  bool scheduled = false;  // read `schedule` instead of rate and `step`, so that captured work runs with new numbers
  OptimizerNumbers numbers = {};
  std::int64_t step = 1;  // counts from 1
  float grad_scale = 1;
  In grad = {};  // [count] f32, bf16 or f16
  // [1] f32: a factor for all gradients that the device has computed (ClipFactor). If it is not positive, or NaN,
  // nothing changes.
  In clip = {};
  In schedule = {};   // [kOptimizerSchedule] f32, if scheduled: optimizer_schedule()
  InOut master = {};  // [count] f32: the weights themselves, or their master copy
  InOut m = {};       // [count] f32, if the rule has a first moment
  InOut v = {};       // [count] f32, if the rule has a second moment
  Out weights = {};   // [count] bf16 or f16, if narrow_weights

  std::string_view name() const { return rule_of(kind).name; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("grad", self.grad, self.count, kGradients);
    visit("clip", self.clip, std::int64_t{1}, kF32);
    if (self.scheduled) visit("schedule", self.schedule, kOptimizerSchedule, kF32);
    visit("master", self.master, self.count, kF32);
    if (rule_of(self.kind).first_moment) visit("m", self.m, self.count, kF32);
    if (rule_of(self.kind).second_moment) visit("v", self.v, self.count, kF32);
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

// FLOPs per element: OptimizerRule::flops, and one more for grad_scale * clip; SumOfSquares 2. ClipFactor: shards + 3
// in total.
Cost cost_of(const OptimizerStep& args);
Cost cost_of(const SumOfSquares& args);
Cost cost_of(const ClipFactor& args);

void run_cpu(const OptimizerStep& args, ThreadPool& pool);
void run_cpu(const SumOfSquares& args, ThreadPool& pool);
void run_cpu(const ClipFactor& args, ThreadPool& pool);
void run_cuda(const OptimizerStep& args, CudaContext& cuda);
void run_cuda(const SumOfSquares& args, CudaContext& cuda);
void run_cuda(const ClipFactor& args, CudaContext& cuda);

// References: plain loops, for tests.

template <class S>
void reference(const OptimizerStep& args, ReferenceData<S>& data) {
  using std::sqrt;
  const OptimizerRule& rule = rule_of(args.kind);
  const S b1 = S(args.numbers.beta1);
  const S b2 = S(args.numbers.beta2);
  const S decay = S(args.numbers.decay);
  const BiasCorrections corrections = bias_corrections(args.kind, args.numbers, args.step);
  S rate = S(args.numbers.rate);
  S correction1 = S(corrections.first);
  S correction2 = S(corrections.second);
  if (args.scheduled) {
    rate = data["schedule"][0];
    correction1 = data["schedule"][1];
    correction2 = data["schedule"][2];
  }
  const auto grad = data["grad"];
  const auto w = data["master"];
  const auto m = data["m"];
  const auto v = data["v"];
  const auto weights = data["weights"];
  const S factor = S(args.grad_scale) * data["clip"][0];
  const bool counts = data["clip"][0] > S(0);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    S g = grad[i] * factor;
    if (!rule.decouples_decay) g += decay * w[i];
    S update = g;
    if (rule.first_moment) update = b1 * m[i] + (rule.corrects_bias ? (S(1) - b1) * g : g);
    if (rule.first_moment && counts) m[i] = update;
    if (rule.corrects_bias) update = update / correction1;
    if (rule.second_moment) {
      const S next_v = b2 * v[i] + (S(1) - b2) * g * g;
      if (counts) v[i] = next_v;
      update = update / (sqrt(rule.corrects_bias ? next_v / correction2 : next_v) + S(args.numbers.epsilon));
    }
    if (rule.decouples_decay) update += decay * w[i];
    const S next_w = w[i] - rate * update;
    if (!counts) continue;
    w[i] = next_w;
    if (args.narrow_weights) weights[i] = next_w;
  }
}

template <class S>
void reference(const SumOfSquares& /*args*/, ReferenceData<S>& data) {
  S sum = S(0);
  for (const S& x : data["x"]) sum += x * x;
  data["sum"][0] = sum;
}

template <class S>
void reference(const ClipFactor& args, ReferenceData<S>& data) {
  using std::sqrt;
  const auto sums = data["sums"];
  S sum = sums[0];
  for (std::size_t i = 1; i < sums.size(); ++i) sum += sums[i];
  const S norm = S(args.grad_scale) * sqrt(sum);
  const double scale = static_cast<double>(args.grad_scale);
  const S factor = S(scale * static_cast<double>(args.most)) / (norm + S(kClipEpsilon));
  data["factor"][0] = factor > S(scale) ? S(scale) : factor;
  data["norm"][0] = norm;
}

}  // namespace lockstep::kernels
