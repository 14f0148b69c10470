// Bytes that a rank holds and sends in each stage of ZeRO: formulas for tests, predictions and docs (Rajbhandari et al.
// 2019, arXiv:1910.02054, sections 3 and 5 to 7). psi is the number of parameters, n the number of ranks that share a
// set of shards. There may be r replicas of the set (hybrid sharding: Zhao et al. 2023, arXiv:2304.11277, section
// 3.2.2), which does not change the bytes that a rank holds.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "parallel/memory/memory.h"
#include "workload/memory_kinds.h"

namespace lockstep::parallel {

struct ZeroCase {
  std::int64_t elems = 0;  // psi; for the bytes of a ParameterStore its padded_elems(), summed over buckets
  std::int32_t ranks = 1;  // n
  std::int32_t stage = 0;
  core::DType compute = core::DType::bf16;
  core::DType gradient = core::DType::bf16;
  kernels::OptimizerKind optimizer = kernels::OptimizerKind::adamw;
  std::int32_t replicas = 1;  // r, replicas of shards: stages 1 to 3
  std::int32_t secondary_ranks =
      0;  // s, ranks that share a secondary copy of the weights: stage 3 (ZeRO++'s hpZ); 0: none

  std::int64_t shard_elems() const { return (elems + ranks - 1) / ranks; }
};

// Bytes held between steps: weights, gradients, optimizer (states in f32, and the master copy of 16-bit weights). In
// 16 bits with two states that is 16 psi, 4 psi + 12 psi/n, 2 psi + 14 psi/n, 16 psi/n for stages 0 to 3; a secondary
// copy takes 2 psi/s more.
BytesByKind zero_bytes(const ZeroCase& of);

// How often stage 3 gathers its weights.
enum class ZeroGathers : std::uint8_t {
  forward_and_backward,  // and frees them after each
  once_a_microbatch,     // kept from forward to backward
  once_a_step,
};
struct ZeroTraffic {
  std::int32_t microbatches = 1;        // m
  bool reduce_every_microbatch = true;  // stages 2 and 3
  ZeroGathers gathers = ZeroGathers::forward_and_backward;
};

// Number of passes over all weights, and over all gradients, per step; an all-reduce takes two. In each pass a rank
// sends (n-1)/n psi elements within its set, as a ring does: with weights and gradients of one size 2 psi, 2 psi, (m+1)
// psi, 3 m psi for stages 0 to 3, times (n-1)/n.
struct ZeroPasses {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
};
ZeroPasses zero_passes(std::int32_t stage, const ZeroTraffic& traffic);

// Bytes per step that are copied to the device and off it for a rank's shard of `elems` elements (one bucket) if a kind
// is offloaded (workload/memory_kinds.h), in whole blocks. An update copies the optimizer's states (12 bytes per
// element if weights are 16 bits) and weights in and out, and gradients in; each reduction copies gradients out, the
// second and later ones of a step after copying the earlier sum in; each gather copies weights in. For m microbatches
// and g gathers: 2, 2 m and g + 2 times the shard of the optimizer's states, gradients and weights.
using OffloadedBytes = std::array<std::int64_t, workload::kNumOffloadKinds>;
OffloadedBytes offloaded_bytes(const ZeroPasses& passes, std::int64_t elems, const workload::OffloadStaging& staging);

// Bytes that a rank sends per step to ranks with the same shard: each reduction is an all-reduce of psi/n elements, 2
// psi/n (r-1)/r. Mean over ranks if r does not divide a shard.
double zero_replica_bytes(const ZeroCase& of, const ZeroTraffic& traffic);

}  // namespace lockstep::parallel
