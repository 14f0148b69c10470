#include "bench/context/exchanges.h"

#include "core/error.h"

namespace lockstep::context_bench {

using collectives::Kind;
using collectives::Operation;
using schedules::Comm;

collectives::Collective& Exchanges::of(Comm comm, const parallel::ContextMove& move) {
  const auto bytes_of = [](const auto& view) {
    return static_cast<std::int64_t>(kernels::size_bytes(view.dtype, view.elems));
  };
  Operation operation{.dtype = core::DType::u8};
  switch (comm) {
    case Comm::shift:
      operation.kind = Kind::all_to_all_v;
      operation.matrix = move.bytes_of_pairs;
      break;
    case Comm::all_gather:
      operation.kind = Kind::all_gather;
      operation.count = bytes_of(move.input);
      break;
    case Comm::all_to_all:
      operation.kind = Kind::all_to_all;
      operation.count = bytes_of(move.input) / num_ranks_;
      break;
    default:
      LOCKSTEP_CHECK(comm == Comm::reduce_scatter, "an exchange of context-parallel ranks");
      operation.kind = Kind::reduce_scatter;
      operation.dtype = move.output.dtype;
      operation.count = move.output.elems;
  }
  auto& one = prepared_[{comm, operation.dtype, operation.count, operation.matrix.get()}];
  if (!one) one = rank_.prepare(channel_, operation, "auto").collective;
  return *one;
}

void Exchanges::run(Comm comm, const parallel::ContextMove& move) {
  of(comm, move)
      .run(move.input.given() ? move.input.data : &nothing_, move.output.given() ? move.output.data : &nothing_);
}

}  // namespace lockstep::context_bench
