#include "bench/parallel/zero_forms.h"

#include <algorithm>

#include "parallel/parameters/zero_bytes.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

// The trainer gathers two units ahead (FSDP's limit) with prefetch, one without.
constexpr std::int32_t kGatheredAhead = 2;

}  // namespace

namespace {

// Kinds that are not on the device.
void take_away(const workload::OffloadPlaces& places, parallel::BytesByKind& held) {
  const auto take = [&](workload::Offload place, MemoryKind kind) {
    if (place != workload::Offload::none) held[static_cast<std::size_t>(kind)] = 0;
  };
  take(places.optimizer, MemoryKind::optimizer);
  take(places.gradients, MemoryKind::gradients);
  take(places.parameters, MemoryKind::weights);
}

}  // namespace

ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout) {
  const std::int32_t microbatches = layout.microbatches;
  const auto compute_bytes = static_cast<std::int64_t>(core::size_of(row.compute));
  const auto gradient_bytes = static_cast<std::int64_t>(core::size_of(row.gradient));
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
                                .replicas = row.replicas / row.shards()};
    parallel::BytesByKind held = parallel::zero_bytes(of);
    take_away(row.offload, held);
    if (row.update == workload::Update::per_bucket) held[static_cast<std::size_t>(MemoryKind::gradients)] = 0;
    for (std::size_t k = 0; k < held.size(); ++k) forms.held[k] += held[k];
    const parallel::ZeroPasses passes = parallel::zero_passes(
        row.stage,
        {.microbatches = microbatches,
         .gathers = bucket.held ? parallel::ZeroGathers::once_a_step : parallel::ZeroGathers::forward_and_backward});
    const auto offloaded = parallel::offloaded_bytes(passes, row.stage > 0 ? of.shard_elems() : of.elems, staging);
    for (std::size_t k = 0; k < offloaded.size(); ++k) forms.offloaded[k] += offloaded[k];
    const std::int64_t elems_a_pass = (of.ranks - 1) * of.shard_elems();
    forms.weight_bytes_sent += passes.weights * elems_a_pass * compute_bytes;
    forms.gradient_bytes_sent += passes.gradients * elems_a_pass * gradient_bytes;
    forms.replica_bytes_sent += parallel::zero_replica_bytes(of, {.microbatches = microbatches});
    if (row.stage < 3) continue;
    if (bucket.held) forms.most_weights += bucket.padded * compute_bytes;
    if (!bucket.held) largest = std::max(largest, bucket.padded);
  }
  const std::int32_t ahead = row.prefetch ? kGatheredAhead : 1;
  forms.most_weights += forms.held[static_cast<std::size_t>(MemoryKind::weights)] + ahead * largest * compute_bytes;
  if (row.offload.parameters != workload::Offload::none) {  // shards that have come for gathers
    forms.most_weights +=
        (layout.offload_ahead + 1) * workload::OffloadStaging::staged_bytes(largest_shard * compute_bytes);
  }
  return forms;
}

}  // namespace lockstep::parallel_bench
