// The router of a mixture of experts: scores the experts, chooses the top k for each token, and weighs each choice
// (gate).
//   softmax   p = softmax(logits) (Shazeer et al. 2017, arXiv:1701.06538; Lepikhin et al. 2020, arXiv:2006.16668)
//   sigmoid   s = 1 / (1 + exp(-logits)) (DeepSeek-V3, arXiv:2412.19437, equation 15)
// Gates are the chosen scores, divided by their sum if `normalised`, times `scale`. A bias on the scores influences
// which experts are chosen, but not the gates (Wang et al. 2024, arXiv:2408.15664). Of equal scores the expert with the
// lower number comes first; scores that are not numbers come last, and choices are experts even then. Deterministic.
//
// Node-limited routing: experts lie in `groups` of neighbours, such as one node's, and a token's experts come from the
// `limit` groups with the largest scores; a group's score is the sum of its top_k / limit largest expert scores,
// including the bias (DeepSeek-V3, section 2.1.2).
//
// Auxiliary losses of the softmax, for T tokens and E experts:
//   balance   a E sum over e of f_e P_e, f_e: fraction of the choices that are e, P_e: mean of p_e over the tokens
//             (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6)
//   z         b times the mean of log(sum of exp(logits))^2 (Zoph et al. 2022, arXiv:2202.08906, equation 5)
// RouterLoads computes the sums that both losses need; RouterBackward adds their gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

enum class RouterScores : std::uint8_t { softmax, sigmoid };

struct RouterShape {
  static constexpr std::int64_t kMostExperts = 1024;
  static constexpr std::int64_t kMostChoices = 16;
  static constexpr std::int64_t kMostGroups = 32;

  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t top_k;
  RouterScores scores = RouterScores::softmax;
  bool normalised = false;
  float scale = 1;
  std::int64_t groups = 1;  // each of equally many experts
  std::int64_t limit = 1;   // a token's experts are in at most this many groups

  bool is_limited() const { return limit < groups; }
  // Number of experts per group whose scores count for it.
  std::int64_t scored_of_group() const { return std::clamp<std::int64_t>(top_k / limit, 1, experts / groups); }
  std::int64_t copies() const { return tokens * top_k; }
  void check(std::string_view kernel) const;
};

struct RouterForward {
  RouterShape shape;
  bool with_bias = false;
  In logits = {};    // [tokens, experts]
  In bias = {};      // [experts] f32, if with_bias
  Out choices = {};  // [tokens, top_k] i32: experts, the best first
  Out gates = {};    // [tokens, top_k] f32

  std::string_view name() const { return "router_fwd"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("logits", self.logits, self.shape.tokens * self.shape.experts, kActivations);
    if (self.with_bias) visit("bias", self.bias, self.shape.experts, kF32);
    visit("choices", self.choices, self.shape.copies(), kI32);
    visit("gates", self.gates, self.shape.copies(), kF32);
  }
};

struct RouterBackward {
  RouterShape shape;
  float balance_scale = 0;  // gradient of p_e of each token, for each choice of e; 0: no balance loss
  float z_scale = 0;        // gradient of log(sum of exp(logits)) of each token, divided by it
  In logits = {};           // [tokens, experts], the forward's
  In choices = {};          // [tokens, top_k] i32, the forward's
  In d_gates = {};          // [tokens, top_k] f32
  In counts = {};           // [experts] i32: choices of each expert, if balance_scale is not 0
  Out d_logits = {};        // [tokens, experts]

  std::string_view name() const { return "router_bwd"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("logits", self.logits, self.shape.tokens * self.shape.experts, kActivations);
    visit("choices", self.choices, self.shape.copies(), kI32);
    visit("d_gates", self.d_gates, self.shape.copies(), kF32);
    if (self.balance_scale != 0) visit("counts", self.counts, self.shape.experts, kI32);
    visit("d_logits", self.d_logits, self.shape.tokens * self.shape.experts, DTypes(self.logits.dtype));
  }
};

// Sums of softmax scores over the tokens.
struct RouterLoads {
  RouterShape shape;
  In logits = {};          // [tokens, experts]
  In choices = {};         // [tokens, top_k] i32
  Out counts = {};         // [experts] i32: choices of each
  Out probabilities = {};  // [experts] f32: sum of p_e over the tokens
  Out z = {};              // [1] f32: sum over the tokens of log(sum of exp(logits))^2

  std::string_view name() const { return "router_loads"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("logits", self.logits, self.shape.tokens * self.shape.experts, kActivations);
    visit("choices", self.choices, self.shape.copies(), kI32);
    visit("counts", self.counts, self.shape.experts, kI32);
    visit("probabilities", self.probabilities, self.shape.experts, kF32);
    visit("z", self.z, 1, kF32);
  }
};

Cost cost_of(const RouterForward& args);
Cost cost_of(const RouterBackward& args);
Cost cost_of(const RouterLoads& args);

void run_cpu(const RouterForward& args, ThreadPool& pool);
void run_cpu(const RouterBackward& args, ThreadPool& pool);
void run_cpu(const RouterLoads& args, ThreadPool& pool);
void run_cuda(const RouterForward& args, CudaContext& cuda);
void run_cuda(const RouterBackward& args, CudaContext& cuda);
void run_cuda(const RouterLoads& args, CudaContext& cuda);

}  // namespace lockstep::kernels
