#include "bench/parallel/zero_forms.h"

#include <algorithm>

#include "parallel/parameters/zero_bytes.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

// The trainer gathers two units ahead (FSDP's limit) with prefetch, one without.
constexpr std::int32_t kGatheredAhead = 2;

}  // namespace

ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, std::int32_t microbatches) {
  const auto compute_bytes = static_cast<std::int64_t>(core::size_of(row.compute));
  const auto gradient_bytes = static_cast<std::int64_t>(core::size_of(row.gradient));
  ZeroForms forms;
  std::int64_t largest = 0;
  for (const BucketElems& bucket : buckets) {
    const parallel::ZeroCase of{.elems = bucket.padded,
                                .ranks = row.shards(),
                                .stage = row.stage,
                                .compute = row.compute,
                                .gradient = row.gradient,
                                .replicas = row.replicas / row.shards()};
    parallel::BytesByKind held = parallel::zero_bytes(of);
    if (row.offload.optimizer != workload::Offload::none) held[static_cast<std::size_t>(MemoryKind::optimizer)] = 0;
    if (row.update == workload::Update::per_bucket) held[static_cast<std::size_t>(MemoryKind::gradients)] = 0;
    for (std::size_t k = 0; k < held.size(); ++k) forms.held[k] += held[k];
    const parallel::ZeroPasses passes = parallel::zero_passes(
        row.stage,
        {.microbatches = microbatches,
         .gathers = bucket.held ? parallel::ZeroGathers::once_a_step : parallel::ZeroGathers::forward_and_backward});
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
  return forms;
}

}  // namespace lockstep::parallel_bench
