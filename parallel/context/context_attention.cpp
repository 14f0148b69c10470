#include "parallel/context/context_attention.h"

#include <array>

#include "core/error.h"
#include "parallel/context/attention_forms.h"

namespace lockstep::parallel {
namespace {

using workload::ContextExchange;
using workload::ContextMessage;
using workload::ContextTurn;
using workload::ExchangePosition;

const ContextExchange& exchange_at(const ContextTurn& turn, const ExchangePosition& place) {
  return (place.results ? turn.results : turn.operands)[static_cast<std::size_t>(place.index)];
}

}  // namespace

ContextPlan::ContextPlan(const ContextLayer& layer) : layer_(layer), list_(workload::context_list(layer.shape)) {
  if (const std::string refusal = workload::why_invalid(layer_); !refusal.empty()) throw core::usage_error(refusal);
  const std::int32_t ranks = layer_.shape.ranks;
  for (const bool backward : {false, true}) {
    Matrices& matrices = matrices_[backward ? 1 : 0];
    for (std::int32_t t = 0; t < list_.turns(); ++t) {
      for (const ExchangePosition& place : workload::places_of(turn(backward, t), t)) {
        if (exchange(backward, place).comm != schedules::Comm::shift) continue;
        collectives::CountMatrix matrix{
            ranks, std::vector<std::int64_t>(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks))};
        for (std::int32_t from = 0; from < ranks; ++from) {
          const ContextExchange& sent = exchange_at(list_.turn(from, backward, t), place);
          for (const workload::ContextMessage& send : sent.sends) {
            matrix.counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) +
                          static_cast<std::size_t>(send.peer)] = layer_.bytes(sent.array);
          }
        }
        const auto number = static_cast<std::size_t>(place.number());
        if (matrices.size() <= number) matrices.resize(number + 1);
        matrices[number] = std::make_shared<const collectives::CountMatrix>(std::move(matrix));
      }
    }
  }
}

const ContextExchange& ContextPlan::exchange(bool backward, const ExchangePosition& place) const {
  return exchange_at(turn(backward, place.turn), place);
}

std::shared_ptr<const collectives::CountMatrix> ContextPlan::bytes_of_pairs(bool backward,
                                                                            const ExchangePosition& place) const {
  const Matrices& matrices = matrices_[backward ? 1 : 0];
  const auto number = static_cast<std::size_t>(place.number());
  return number < matrices.size() ? matrices[number] : nullptr;
}

std::unique_ptr<ContextAttention> make_context_attention(const ContextPlan& plan, const Workspace& workspace) {
  switch (plan.layer().shape.way) {
    case workload::ContextWay::ulysses:
      return make_head_attention(plan, workspace);
    case workload::ContextWay::colossal:
      return make_score_attention(plan, workspace);
    default:
      return make_block_attention(plan, workspace);
  }
}

Exchange ContextShelves::begin_shift(bool backward, const ExchangePosition& place, kernels::In d_o) {
  const ContextExchange& exchange = plan_.exchange(backward, place);
  const ContextLayer& layer = plan_.layer();
  if (!place.results && place.index == 0) give_up(backward, workload::ContextMoment::operands_begin, place.turn);
  Exchange move{.input = {nullptr, core::DType::u8, 0},
                .output = {nullptr, core::DType::u8, 0},
                .matrix = plan_.bytes_of_pairs(backward, place)};
  for (const ContextMessage& send : exchange.sends) {
    const Shelf::Key key{exchange.array, send.owner};
    if (workload::is_summed(exchange.array) && held.find(key) == nullptr) {
      held.put(key, workspace_.memory.make_zeroed(MemoryKind::activations, layer.dtype_of(exchange.array),
                                                  layer.elems(exchange.array)));
    }
    const bool is_own_d_o = exchange.array == workload::ContextArray::d_outputs && send.owner == layer.rank;
    move.input = is_own_d_o ? d_o : held.at(key).in();
  }
  for (const ContextMessage& receive : exchange.receives) {
    Tensor received = workspace_.memory.make(MemoryKind::activations, layer.dtype_of(exchange.received),
                                             layer.elems(exchange.received));
    move.output = arriving_.put({exchange.received, receive.owner}, std::move(received)).out();
  }
  return move;
}

void ContextShelves::end_shift(bool backward, const ExchangePosition& place) {
  const ContextExchange& exchange = plan_.exchange(backward, place);
  if (place.results) {  // results computed for other ranks have been sent
    for (const ContextMessage& send : exchange.sends) held.take({exchange.array, send.owner});
  }
  for (const ContextMessage& receive : exchange.receives) {
    const Shelf::Key key{exchange.received, receive.owner};
    (place.results ? arrived : held).put(key, arriving_.take(key));
  }
}

void ContextShelves::give_up(bool backward, workload::ContextMoment moment, std::int32_t turn) {
  const workload::ContextSides& sides = plan_.sides();
  const std::int32_t gone = workload::turn_given_up(backward ? sides.backward : sides.forward, backward, moment, turn);
  if (gone < 0) return;
  for (const ContextExchange& exchange : plan_.turn(backward, gone).operands) {
    if (exchange.comm != schedules::Comm::shift) continue;
    for (const ContextMessage& receive : exchange.receives) held.take({exchange.received, receive.owner});
  }
}

}  // namespace lockstep::parallel
