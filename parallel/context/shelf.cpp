#include "parallel/context/shelf.h"

namespace lockstep::parallel {

using workload::ContextExchange;
using workload::ContextMessage;
using workload::ExchangePlace;

ContextMove ContextShelves::begin_shift(bool backward, const ExchangePlace& place, kernels::In d_o) {
  const ContextExchange& exchange = plan_.exchange(backward, place);
  const ContextLayer& layer = plan_.layer();
  if (!place.results && place.index == 0) give_up(backward, workload::ContextMoment::operands_begin, place.turn);
  ContextMove move{.input = {nullptr, core::DType::u8, 0},
                   .output = {nullptr, core::DType::u8, 0},
                   .bytes_of_pairs = plan_.bytes_of_pairs(backward, place)};
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
    Tensor made = workspace_.memory.make(MemoryKind::activations, layer.dtype_of(exchange.received),
                                         layer.elems(exchange.received));
    move.output = arriving_.put({exchange.received, receive.owner}, std::move(made)).out();
  }
  return move;
}

void ContextShelves::end_shift(bool backward, const ExchangePlace& place) {
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
