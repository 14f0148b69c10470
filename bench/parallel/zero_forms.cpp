#include "bench/parallel/zero_forms.h"

#include <algorithm>

#include "parallel/parameters/zero_bytes.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

// With prefetch the trainer gathers two units ahead (FSDP's limit); without it, one.
constexpr std::int32_t kGatheredAhead = 2;

}  // namespace

namespace {

// Removes the kinds that are not on the device.
void take_away(const workload::OffloadPlaces& places, parallel::BytesByKind& held) {
  const auto take = [&](workload::Offload place, MemoryKind kind) {
    if (place != workload::Offload::none) held[static_cast<std::size_t>(kind)] = 0;
  };
  take(places.optimizer, MemoryKind::optimizer);
  take(places.gradients, MemoryKind::gradients);
  take(places.parameters, MemoryKind::weights);
}

std::int64_t elem_bytes(core::DType dtype) {
  return static_cast<std::int64_t>(core::size_of(dtype));
}

SentBytes sent_of(const ZeroRow& row, const BucketElems& bucket, const parallel::ZeroCase& of,
                  const parallel::ZeroTraffic& traffic) {
  const parallel::ZeroPasses passes = parallel::zero_passes(row.stage, traffic);
  const std::int64_t elems_a_pass = (of.ranks - 1) * of.shard_elems();
  const auto times = [](std::int64_t count, std::int64_t bytes) { return static_cast<double>(count * bytes); };
  const auto bytes_of = [](const workload::CompressedExchange& exchange, int ranks) {
    return workload::wire_bytes(exchange, ranks);
  };
  SentBytes sent;
  sent.replicas = parallel::zero_replica_bytes(of, {.microbatches = traffic.microbatches});
  // Gathers of the forward, and of the backward if it gathers over the same ranks.
  std::int64_t over_all = passes.weights;
  if (row.secondary_ranks > 0 && !bucket.held) {
    over_all = traffic.microbatches;
    const std::int64_t others = bucket.padded / row.secondary_ranks * (row.secondary_ranks - 1);
    sent.secondary = times(passes.weights - over_all, others * elem_bytes(row.compute));
  }
  sent.weights =
      row.weight_compression == workload::CompressionWay::none
          ? times(over_all, elems_a_pass * elem_bytes(row.compute))
          : times(over_all, bytes_of(weight_gather_of(row.weight_compression, bucket.padded, of.ranks), of.ranks));
  const std::int64_t reductions = passes.gradients;
  if (!row.compression.given() || of.replicas > 1) {
    sent.gradients = times(reductions, elems_a_pass * elem_bytes(row.gradient));
  } else if (row.near_ranks == 0) {
    sent.gradients = times(reductions, bytes_of(scatter_of(row.compression, bucket.padded, of.ranks), of.ranks));
  } else {
    const workload::TwoHops hops = two_hops_of(row.compression, bucket.padded, of.ranks, row.near_ranks);
    sent.near = times(reductions, bytes_of(hops.near, row.near_ranks));
    sent.gradients = times(reductions, bytes_of(hops.far, of.ranks / row.near_ranks));
  }
  return sent;
}

void add(SentBytes& to, const SentBytes& more) {
  to.weights += more.weights;
  to.secondary += more.secondary;
  to.gradients += more.gradients;
  to.near += more.near;
  to.replicas += more.replicas;
}

}  // namespace

ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout) {
  const std::int32_t microbatches = layout.microbatches;
  ZeroForms forms;
  std::int64_t largest = 0;
  std::int64_t largest_shard = 0;
  for (const BucketElems& bucket : buckets) {
    const std::int64_t shard = bucket.padded / (row.stage > 0 ? row.shards() : 1);
    largest_shard = std::max(largest_shard, shard);
  }
  const workload::OffloadStaging staging = offload_staging(row.offload, row.compute, row.gradient, largest_shard);
  for (const BucketElems& bucket : buckets) {
    const parallel::ZeroCase of{.elems = bucket.padded,
                                .ranks = row.shards(),
                                .stage = row.stage,
                                .compute = row.compute,
                                .gradient = row.gradient,
                                .replicas = row.replicas / row.shards(),
                                .secondary_ranks = bucket.held ? 0 : row.secondary_ranks};
    parallel::BytesByKind held = parallel::zero_bytes(of);
    take_away(row.offload, held);
    if (row.update == workload::Update::per_bucket) held[static_cast<std::size_t>(MemoryKind::gradients)] = 0;
    for (std::size_t k = 0; k < held.size(); ++k) forms.held[k] += held[k];
    const parallel::ZeroTraffic traffic{
        .microbatches = microbatches,
        .gathers = bucket.held ? parallel::ZeroGathers::once_a_step : parallel::ZeroGathers::forward_and_backward};
    const auto offloaded = parallel::offloaded_bytes(parallel::zero_passes(row.stage, traffic),
                                                     row.stage > 0 ? of.shard_elems() : of.elems, staging);
    for (std::size_t k = 0; k < offloaded.size(); ++k) forms.offloaded[k] += offloaded[k];
    add(forms.sent, sent_of(row, bucket, of, traffic));
    if (row.stage < 3) continue;
    if (bucket.held) forms.most_weights += bucket.padded * elem_bytes(row.compute);
    if (!bucket.held) largest = std::max(largest, bucket.padded);
  }
  const std::int32_t ahead = row.prefetch ? kGatheredAhead : 1;
  forms.most_weights +=
      forms.held[static_cast<std::size_t>(MemoryKind::weights)] + ahead * largest * elem_bytes(row.compute);
  if (row.offload.parameters != workload::Offload::none) {  // shards copied to the device for gathers
    forms.most_weights +=
        (layout.offload_ahead + 1) * workload::OffloadStaging::staged_bytes(largest_shard * elem_bytes(row.compute));
  }
  return forms;
}

}  // namespace lockstep::parallel_bench
