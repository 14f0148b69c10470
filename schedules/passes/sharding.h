// Parameters that are spread over data-parallel ranks (ZeRO: Rajbhandari et al. 2019, arXiv:1910.02054; FSDP: Zhao et
// al. 2023, arXiv:2304.11277): UNSHARD tasks that gather them, in lane gather, and RESHARD tasks that give them up.
// Gradients are reduce_gradients()'s, whose buckets may be the units; the ZeRO stages are
//   1  reduce-scatter of the last microbatch's gradients, gather_after_step()
//   2  reduce-scatter of every microbatch's gradients, gather_after_step()
//   3  shard_parameters(), and reduce-scatter of every microbatch's gradients
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/passes/buckets.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Parts of a stage that are gathered, and reduced, together. Units may begin with the same part, one behind the other:
// it then needs them all.
struct Unit {
  std::int32_t first_part = 0;
  std::int32_t num_parts = 1;
  std::int64_t parameter_bytes = 0;  // of the whole unit
  std::int64_t gradient_bytes = 0;
  GroupKind group = GroupKind::data;  // that it is spread over
  // Once gathered it stays to the end of the step, whatever ShardingOptions::keep says: parts of other units use it,
  // too (a word embedding that is also the head's matrix; FSDP's root unit).
  bool held = false;
  std::int32_t tile = -1;  // of the part, which is needed for the tile's tasks alone; -1: for all others
};
// A bucket a unit, the last unit first.
std::vector<GradientBucket> buckets_of(std::span<const Unit> units);

enum class Keep : std::uint8_t {
  while_used,      // FULL_SHARD: a forward gives its unit up, and the backward gathers it again
  until_backward,  // SHARD_GRAD_OP: given up after the backward
  always,          // once gathered, to the end of the step
};

struct ShardingOptions {
  Keep keep = Keep::while_used;
  // At most so many units are gathered, or being gathered, ahead of their use, the one in use among them: 1 gathers a
  // unit when the one before it is done with, 2 is FSDP's limit.
  std::int32_t in_flight = 2;
  // Without it a backward's gather waits for the reduction of the unit before (FSDP's backward_prefetch=None, where
  // both stand in one stream).
  bool backward_prefetch = true;
  // Weights gathered to recompute a part are given up before its backward, which gathers them once more (DeepSpeed,
  // where a layer has more parameters than it keeps).
  bool gather_again_after_recompute = false;
  // The tile that a task is of; -1: of none. Where no unit is a tile's it is not asked.
  std::int32_t (*tile_of)(const Task& task) = [](const Task& /*task*/) { return -1; };
  // Only forwards gather units of GroupKind::data over all of that group; all other uses gather them over
  // GroupKind::secondary, from the copy that a forward's RESHARD leaves (ZeRO++'s hpZ: Wang et al. 2023,
  // arXiv:2306.10209, section 4.2). With Keep::while_used only, as a backward may not find its unit gathered.
  bool secondary = false;
};

// `units`: for each stage of the step. F, B, I and recomputation need their unit; W does not. An action without parts
// needs all units of its stage. RESHARD tasks take no time and stand in lane compute. Reductions have to be in the step
// if there is to be no backward prefetch.
void shard_parameters(Step& step, std::span<const std::vector<Unit>> units, const ShardingOptions& options);

// ZeRO 1 and 2: when a rank has updated its shards it gathers all parameters; nothing waits for it in this step. A unit
// whose bucket has a STEP of its own (add_bucket_updates(); the buckets are buckets_of()) is gathered behind that. (To
// gather them beside the next step's forward, which then begins with it: shard_parameters() with Keep::always.)
void gather_after_step(Step& step, std::span<const std::vector<Unit>> units);

}  // namespace lockstep::schedules
