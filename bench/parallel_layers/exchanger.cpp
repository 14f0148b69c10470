#include "bench/parallel_layers/exchanger.h"

#include <utility>

#include "collectives/plan/check.h"
#include "collectives/plan/count.h"
#include "core/error.h"

namespace lockstep::layer_bench {

using collectives::Kind;

std::function<void()> Exchanger::all_reduce(kernels::InOut values) {
  return make({.kind = Kind::all_reduce, .count = values.elems, .dtype = values.dtype, .in_place = true}, values.data,
              values.data);
}

std::function<void()> Exchanger::all_gather(kernels::In own, kernels::Out all) {
  return make({.kind = Kind::all_gather, .count = own.elems, .dtype = own.dtype}, own.data, all.data);
}

std::function<void()> Exchanger::reduce_scatter(kernels::In all, kernels::Out own) {
  return make({.kind = Kind::reduce_scatter, .count = own.elems, .dtype = own.dtype}, all.data, own.data);
}

std::function<void()> Exchanger::make(const collectives::Operation& operation, const void* input, void* output) {
  Prepared& one = prepared(operation);
  return [this, &one, input, output] {
    one.collective->run(input, output);
    sent_bytes_ += one.sent_bytes;
  };
}

Exchanger::Prepared& Exchanger::prepared(const collectives::Operation& operation) {
  const auto [entry, is_new] = prepared_.try_emplace({operation.kind, operation.dtype, operation.count});
  Prepared& one = entry->second;
  if (!is_new) return one;
  backends::Prepared made = rank_.prepare(channel_, operation, algorithm_);
  LOCKSTEP_CHECK(made.plan.has_value(), "a collective without a plan");
  const plan::Counts counts = plan::count(*made.plan, plan::contents_of(*made.plan), operation);
  one.collective = std::move(made.collective);
  one.sent_bytes = counts.ranks[static_cast<std::size_t>(index_)].bytes_sent;
  return one;
}

}  // namespace lockstep::layer_bench
