// Shards parameters over data-parallel ranks (ZeRO: Rajbhandari et al. 2019, arXiv:1910.02054; FSDP: Zhao et al. 2023,
// arXiv:2304.11277): UNSHARD tasks gather them, in lane gather, and RESHARD tasks free them. reduce_gradients() reduces
// gradients; its buckets may be the units. The ZeRO stages are
//   1  reduce-scatter of the last microbatch's gradients, gather_after_step()
//   2  reduce-scatter of every microbatch's gradients, gather_after_step()
//   3  shard_parameters(), and reduce-scatter of every microbatch's gradients
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/passes/reduce_gradients.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Parts of a stage that are gathered, and reduced, together. Consecutive units may begin with the same part, which then
// needs them all.
struct Unit {
  std::int32_t first_part = 0;
  std::int32_t num_parts = 1;
  std::int64_t parameter_bytes = 0;  // whole unit, before sharding
  std::int64_t gradient_bytes = 0;
  GroupKind group = GroupKind::data;  // group over which it is sharded
  // Once gathered, stays until the end of the step, whatever ShardingOptions::keep is: parts of other units use it, too
  // (a word embedding that is also the head's matrix; FSDP's root unit).
  bool held = false;
  std::int32_t tile = -1;  // tile of the part whose tasks alone need the unit; -1: all other tasks need it
};
// One bucket per unit, the last unit first.
std::vector<GradientBucket> buckets_of(std::span<const Unit> units);

enum class Keep : std::uint8_t {
  while_used,      // FULL_SHARD: freed after the forward, gathered again for the backward
  until_backward,  // SHARD_GRAD_OP: freed after the backward
  always,          // kept until the end of the step
};

struct ShardingOptions {
  Keep keep = Keep::while_used;
  // Largest number of units that are gathered or being gathered, including the one in use: 1 gathers a unit when the
  // one before it is no longer used, 2 is FSDP's limit.
  std::int32_t in_flight = 2;
  // If false, a backward's gather waits for the reduction of the previous unit (FSDP's backward_prefetch=None, where
  // both are in one stream).
  bool backward_prefetch = true;
  // Frees weights gathered for a part's recomputation before its backward, which gathers them once more (DeepSpeed,
  // where a layer has more parameters than it keeps).
  bool gather_again_after_recompute = false;
  // Returns the tile of a task, -1 if it has none. Not called if no unit has a tile.
  std::int32_t (*tile_of)(const Task& task) = [](const Task& /*task*/) { return -1; };
  // Only forwards gather units of GroupKind::data over the whole group; other uses gather them over
  // GroupKind::secondary, from the copy that a forward's RESHARD leaves (ZeRO++'s hpZ: Wang et al. 2023,
  // arXiv:2306.10209, section 4.2). Requires Keep::while_used, so that no backward finds its unit already gathered.
  bool secondary = false;
};

// `units`: one list per stage of the step. F, B, I and recomputation need their unit; W does not. An action without
// parts needs all units of its stage. RESHARD tasks take no time, in lane compute. Without backward prefetch the
// reductions have to be in the step already.
void shard_parameters(Step& step, std::span<const std::vector<Unit>> units, const ShardingOptions& options);

// ZeRO 1 and 2: each rank gathers all parameters after it has updated its shards; nothing in this step waits for that.
// A unit whose bucket has its own STEP (add_bucket_updates() with buckets_of()) is gathered after that STEP. (To
// overlap the gathers with the next step's forward instead: shard_parameters() with Keep::always.)
void gather_after_step(Step& step, std::span<const std::vector<Unit>> units);

// The uses of sharded parameters by a rank's tasks.

struct UnitUse {
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t first_unit = 0;
  std::int32_t num_units = 1;  // several if the action has no parts
  bool backward = false;
  std::uint32_t first = 0;  // first and last task of the rank that use the units
  std::uint32_t last = 0;
};

// Uses in the order of the compute lane; they do not overlap.
std::vector<UnitUse> uses_of(const RankStep& rank, std::span<const std::vector<Unit>> units,
                             const ShardingOptions& options);

}  // namespace lockstep::schedules
