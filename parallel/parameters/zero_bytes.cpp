#include "parallel/parameters/zero_bytes.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::parallel {
namespace {

std::int64_t bytes_of(core::DType dtype, std::int64_t elems) {
  return static_cast<std::int64_t>(core::size_of(dtype)) * elems;
}

std::int64_t& of_kind(BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

}  // namespace

BytesByKind zero_bytes(const ZeroCase& of) {
  const std::int64_t shard = of.shard_elems();
  BytesByKind bytes{};
  of_kind(bytes, MemoryKind::weights) = bytes_of(of.compute, of.stage >= 3 ? shard : of.elems);
  if (of.stage >= 3 && of.secondary_ranks > 0) {
    of_kind(bytes, MemoryKind::weights) += bytes_of(of.compute, of.elems / of.secondary_ranks);
  }
  of_kind(bytes, MemoryKind::gradients) = bytes_of(of.gradient, of.stage >= 2 ? shard : of.elems);
  of_kind(bytes, MemoryKind::optimizer) =
      workload::optimizer_elem_bytes(of.optimizer, of.compute) * (of.stage >= 1 ? shard : of.elems);
  return bytes;
}

ZeroPasses zero_passes(std::int32_t stage, const ZeroTraffic& traffic) {
  const std::int64_t m = traffic.microbatches;
  const std::int64_t reductions = traffic.reduce_every_microbatch ? m : 1;
  switch (stage) {
    case 0:
      return {.weights = 0, .gradients = 2};
    case 1:
      return {.weights = 1, .gradients = 1};
    case 2:
      return {.weights = 1, .gradients = reductions};
    default:
      break;
  }
  switch (traffic.gathers) {
    case ZeroGathers::forward_and_backward:
      return {.weights = 2 * m, .gradients = reductions};
    case ZeroGathers::once_a_microbatch:
      return {.weights = m, .gradients = reductions};
    case ZeroGathers::once_a_step:
      return {.weights = 1, .gradients = reductions};
  }
  return {};
}

OffloadedBytes offloaded_bytes(const ZeroPasses& passes, std::int64_t elems, const workload::OffloadStaging& staging) {
  const OffloadedBytes times{2, 2 * passes.gradients, passes.weights + 2};
  OffloadedBytes bytes = {};
  for (std::int64_t left = elems; left > 0; left -= staging.piece_elems) {
    for (std::size_t kind = 0; kind < bytes.size(); ++kind) {
      const std::int64_t piece = std::min(left, staging.piece_elems);
      bytes[kind] += times[kind] * staging.bytes_of(static_cast<workload::OffloadKind>(kind), piece);
    }
  }
  return bytes;
}

double zero_replica_bytes(const ZeroCase& of, const ZeroTraffic& traffic) {
  if (of.stage == 0) return 0;  // one set of all ranks
  const std::int64_t reductions = zero_passes(of.stage, traffic).gradients;
  const auto shard_bytes = static_cast<double>(reductions * bytes_of(of.gradient, of.shard_elems()));
  return 2 * shard_bytes * (of.replicas - 1) / of.replicas;
}

}  // namespace lockstep::parallel
