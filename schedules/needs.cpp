#include "schedules/needs.h"

namespace lockstep::schedules {

Needs needs_of(const Schedule& schedule, const Action& action) {
  Needs needs;
  const auto add = [&](Product product, std::int32_t stage) {
    needs.all.at(needs.count++) = {product, stage, action.microbatch};
  };
  switch (action.op) {
    case Op::forward:
      if (!schedule.is_first(action.stage)) add(Product::activations, action.stage - 1);
      break;
    case Op::backward:
    case Op::input_gradient:
      add(Product::activations, action.stage);
      if (!schedule.is_last(action.stage)) add(Product::gradient, action.stage + 1);
      break;
    case Op::weight_gradient:
      add(Product::gradient, action.stage);
      break;
    default:  // other operations need no product
      break;
  }
  return needs;
}

bool gives(const Action& action, Product product) {
  if (product == Product::activations) return action.op == Op::forward;
  return action.op == Op::backward || action.op == Op::input_gradient;
}

}  // namespace lockstep::schedules
