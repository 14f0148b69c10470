// The optimizers: how each updates a weight, which states it keeps for every parameter, and its usual numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lockstep::kernels {

// With g the gradient and the corrections c1 = 1 - beta1^step, c2 = 1 - beta2^step (1 for rules that correct no bias):
//   g += decay * w                                 unless the rule decouples decay
//   m = beta1 * m + (1 - beta1) * g                if there is a first moment; m = beta1 * m + g without correction
//   v = beta2 * v + (1 - beta2) * g^2              if there is a second moment
//   u = (m, or g without m) / c1 / (sqrt(v / c2) + epsilon)    without v: no division by the root
//   w -= rate * u                                  if the rule decouples decay: rate * (u + decay * w)
// These are the formulas of torch.optim: SGD (momentum: Sutskever, Martens, Dahl, Hinton 2013, section 2, without
// dampening and Nesterov's term), RMSprop (Tieleman, Hinton 2012, lecture 6.5 of "Neural Networks for Machine
// Learning"; not centred, no momentum), Adam (Kingma, Ba 2015, arXiv:1412.6980, algorithm 1; decay as L2) and AdamW
// (Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2).
enum class OptimizerKind : std::uint8_t { sgd, momentum, rmsprop, adam, adamw };
inline constexpr std::array kOptimizerKinds{OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::rmsprop,
                                            OptimizerKind::adam, OptimizerKind::adamw};

// The numbers of a rule; unused ones are ignored. The defaults are torch.optim.Adam's. In f64, because in f32 1 - 0.99
// would be wrong by 1e-6 of itself, and so would RMSprop's moment.
struct OptimizerNumbers {
  double rate = 1e-3;
  double beta1 = 0.9;    // factor of the first moment; PyTorch's momentum
  double beta2 = 0.999;  // factor of the second moment; RMSprop's alpha
  double epsilon = 1e-8;
  double decay = 0;  // for parameters that decay
};

struct OptimizerRule {
  std::string_view name;
  bool first_moment = false;
  bool second_moment = false;
  bool corrects_bias = false;
  bool decouples_decay = false;
  double flops = 0;  // per element, without the product of scale and clip factor
  OptimizerNumbers usual = {};

  constexpr int states() const { return (first_moment ? 1 : 0) + (second_moment ? 1 : 0); }  // per parameter, f32
};

// Usual numbers: torch.optim's, except that Adam's betas are (0.9, 0.95) and AdamW decays by 0.1, as in GPT-3 (Brown et
// al. 2020, arXiv:2005.14165, appendix B); of SGD's momentum PyTorch has no default but 0.
inline constexpr std::array kOptimizers{
    OptimizerRule{.name = "sgd", .flops = 5},
    OptimizerRule{.name = "momentum", .first_moment = true, .flops = 7},
    OptimizerRule{.name = "rmsprop", .second_moment = true, .flops = 12, .usual = {.beta2 = 0.99}},
    OptimizerRule{.name = "adam",
                  .first_moment = true,
                  .second_moment = true,
                  .corrects_bias = true,
                  .flops = 17,
                  .usual = {.beta2 = 0.95}},
    OptimizerRule{.name = "adamw",
                  .first_moment = true,
                  .second_moment = true,
                  .corrects_bias = true,
                  .decouples_decay = true,
                  .flops = 17,
                  .usual = {.beta2 = 0.95, .decay = 0.1}},
};

constexpr const OptimizerRule& rule_of(OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)];
}

inline constexpr auto kOptimizerNames = [] {
  std::array<std::string_view, kOptimizers.size()> names;
  for (std::size_t kind = 0; kind < names.size(); ++kind) names[kind] = kOptimizers[kind].name;
  return names;
}();

// Calls visit(std::integral_constant<OptimizerKind, kind>).
template <class Visit>
void with_optimizer(OptimizerKind kind, Visit&& visit) {
  switch (kind) {
    case OptimizerKind::sgd:
      return visit(std::integral_constant<OptimizerKind, OptimizerKind::sgd>{});
    case OptimizerKind::momentum:
      return visit(std::integral_constant<OptimizerKind, OptimizerKind::momentum>{});
    case OptimizerKind::rmsprop:
      return visit(std::integral_constant<OptimizerKind, OptimizerKind::rmsprop>{});
    case OptimizerKind::adam:
      return visit(std::integral_constant<OptimizerKind, OptimizerKind::adam>{});
    case OptimizerKind::adamw:
      return visit(std::integral_constant<OptimizerKind, OptimizerKind::adamw>{});
  }
}

}  // namespace lockstep::kernels
