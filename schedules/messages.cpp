#include "schedules/schedule.h"

#include <algorithm>

namespace lockstep::schedules {

std::vector<std::int32_t> looped_placement(std::int32_t ranks, std::int32_t chunks) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t s = 0; s < ranks * chunks; ++s) rank_of.push_back(s % ranks);
  return rank_of;
}

std::vector<std::int32_t> folded_placement(std::int32_t ranks, std::int32_t chunks) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t s = 0; s < ranks * chunks; ++s) {
    rank_of.push_back(s / ranks % 2 == 0 ? s % ranks : ranks - 1 - s % ranks);
  }
  return rank_of;
}

std::vector<std::int32_t> opposite_placement(std::int32_t ranks) {
  return folded_placement(ranks, 2);  // the second pipe begins at the fold
}

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

std::optional<Product> product_of(Op op) {
  if (op == Op::forward) return Product::activations;
  return op == Op::backward || op == Op::input_gradient ? std::optional(Product::gradient) : std::nullopt;
}

namespace {

std::int32_t rank_of(const Schedule& schedule, std::int32_t stage) {
  return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
}

std::vector<Action> receives_of(const Schedule& schedule, const Action& action, std::int32_t rank) {
  std::vector<Action> receives;
  for (const Need& need : needs_of(schedule, action)) {
    if (rank_of(schedule, need.stage) == rank) continue;
    const bool activations = need.product == Product::activations;
    receives.push_back({activations ? Op::recv_activations : Op::recv_gradient, action.stage, action.microbatch});
  }
  return receives;
}

}  // namespace

std::optional<std::int32_t> receiver_of(const Schedule& schedule, const Action& action) {
  const auto product = product_of(action.op);
  const bool forward = product == Product::activations;
  if (!product || (forward ? schedule.is_last(action.stage) : schedule.is_first(action.stage))) return std::nullopt;
  const std::int32_t next = rank_of(schedule, forward ? action.stage + 1 : action.stage - 1);
  return next == rank_of(schedule, action.stage) ? std::nullopt : std::optional(next);
}

std::int32_t peer_of(const Schedule& schedule, const Action& message) {
  const bool up = message.op == Op::send_activations || message.op == Op::recv_gradient;
  return rank_of(schedule, up ? message.stage + 1 : message.stage - 1);
}

Need message_of(const Action& message) {
  switch (message.op) {
    case Op::send_activations:
      return {Product::activations, message.stage, message.microbatch};
    case Op::recv_activations:
      return {Product::activations, message.stage - 1, message.microbatch};
    case Op::send_gradient:
      return {Product::gradient, message.stage, message.microbatch};
    default:
      return {Product::gradient, message.stage + 1, message.microbatch};
  }
}

bool evicts_activations(const Schedule& schedule) {
  for (const auto& list : schedule.of_rank) {
    if (std::any_of(list.begin(), list.end(), [](const Action& action) { return is_of_eviction(action.op); }))
      return true;
  }
  return false;
}

bool has_messages(const Schedule& schedule) {
  for (const auto& list : schedule.of_rank) {
    if (std::any_of(list.begin(), list.end(), [](const Action& action) { return is_between_stages(action.op); }))
      return true;
  }
  return false;
}

Schedule with_messages(const Schedule& schedule) {
  Schedule lowered = schedule;
  for (std::int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<Action> list = schedule.of_rank[static_cast<std::size_t>(rank)];
    std::erase_if(list, [](const Action& action) { return is_between_stages(action.op); });
    std::vector<Action>& out = lowered.of_rank[static_cast<std::size_t>(rank)];
    out.clear();
    for (std::size_t begin = 0; begin < list.size();) {
      const std::size_t end = end_of_fused(list, begin);
      for (std::size_t i = begin; i < end; ++i) {
        for (const Action& receive : receives_of(schedule, list[i], rank)) out.push_back(receive);
      }
      out.insert(out.end(), list.begin() + static_cast<std::ptrdiff_t>(begin),
                 list.begin() + static_cast<std::ptrdiff_t>(end));
      for (std::size_t i = begin; i < end; ++i) {
        if (!receiver_of(schedule, list[i])) continue;
        out.push_back(
            {list[i].op == Op::forward ? Op::send_activations : Op::send_gradient, list[i].stage, list[i].microbatch});
      }
      begin = end;
    }
  }
  return lowered;
}

}  // namespace lockstep::schedules
