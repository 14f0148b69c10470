#include "bench/tp_linear/exchanger.h"

#include <string_view>

#include "core/error.h"

namespace lockstep::tp_linear {
namespace {

using schedules::Comm;

collectives::Operation operation_of(Comm comm, const kernels::InOut& from, const kernels::Out& to) {
  if (comm == Comm::all_reduce) {
    return {.kind = collectives::Kind::all_reduce, .count = from.elems, .dtype = from.dtype, .in_place = true};
  }
  if (comm == Comm::all_gather)
    return {.kind = collectives::Kind::all_gather, .count = from.elems, .dtype = from.dtype};
  LOCKSTEP_CHECK(comm == Comm::reduce_scatter, "a collective of tensor-parallel ranks");
  return {.kind = collectives::Kind::reduce_scatter, .count = to.elems, .dtype = from.dtype};
}

}  // namespace

std::function<void()> Exchanger::make(Comm comm, const kernels::InOut& from, const kernels::Out& to) {
  return make(operation_of(comm, from, to), from.data, to.data);
}

std::function<void()> Exchanger::make(const collectives::Operation& operation, const void* input, void* output) {
  collectives::Collective& one = prepared(operation);
  return [&one, input, output] { one.run(input, output); };
}

collectives::Collective& Exchanger::prepared(const collectives::Operation& operation) {
  auto& one = prepared_[{operation.kind, operation.dtype, operation.count, operation.root, operation.in_place}];
  // Broadcasts and reductions to a root use the default, because the flag names an algorithm of the other collectives.
  const std::string_view algorithm = collectives::has_root(operation.kind) ? "auto" : std::string_view(algorithm_);
  if (!one) one = rank_.prepare(channel_, operation, algorithm).collective;
  return *one;
}

}  // namespace lockstep::tp_linear
