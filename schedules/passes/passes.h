// The passes, each of which adds one part of training to a lowered step: the pieces of a stage's work, reductions of
// gradients, sharded parameters, copies to the host, the optimizer, and work for the bubbles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// The work of a stage for one microbatch as a list of pieces: kernels and the collectives between them. A model and its
// layout determine a recipe (workload/build_step.h); split_stages() replaces each whole F, B, I and W by it.

struct Piece {
  // forward, backward, input_gradient, weight_gradient or recompute: a kernel; layer_collective: a collective.
  Op op = Op::forward;
  std::int32_t part = -1;               // part of the stage: a layer, or whatever units and buckets distinguish
  std::int64_t amount = 0;              // as Task::amount
  Comm comm = Comm::none;               // for collectives
  GroupKind group = GroupKind::tensor;  // for collectives
  // A collective that overlaps the next piece: only the piece after the next waits for it (Megatron's asynchronous
  // all-reduce of an input gradient during the weight gradient). Otherwise the next kernel waits.
  bool overlaps_next = false;
  std::uint32_t what = 0;     // which of the part's pieces; numbered by the maker of the recipe for its worker
  std::int64_t issue_ps = 0;  // as Task::issue_ps
};

struct StageRecipe {
  std::vector<Piece> forward = {};
  std::vector<Piece> backward = {};  // full backward, recomputation included
  std::vector<Piece> input_gradient = {};
  std::vector<Piece> weight_gradient = {};
};

// Replaces whole actions by pieces: the kernels of a stage and the collectives between them.
//
// `recipes`: one for each stage of the step, or for each slice of each stage (work_index()). Every F, B, I and W
// becomes the pieces of its stage's recipe; an empty list leaves it whole. Kernels go to lane compute, collectives to
// lane tensor.
//
// A collective starts when the kernel before it has ended. The next kernel, of the same action or not, waits for it; if
// it is `overlaps_next`, only the piece after the next one waits. Tasks that waited for the whole action wait for its
// last kernel and its last collective.
//
// Throws a usage Error if a rank has no group of a collective's kind.
void split_stages(Step& step, std::span<const StageRecipe> recipes);

// Gradient buckets: the gradients that are reduced together. Many small reductions cost latency, and a single one
// cannot start before the backward ends; buckets are between the two.

struct Parameter {
  std::int64_t elements = 0;
  std::int32_t grad_bytes = 4;        // per element of its gradient
  std::int32_t part = -1;             // part of the stage, numbered in forward order; -1: unknown
  GroupKind group = GroupKind::data;  // group over which its gradient is reduced
};

// A bucket takes parameters until it holds at least its limit. A parameter is never split, so buckets overshoot.
struct BucketRules {
  std::vector<std::int64_t> limits =
      {};  // bytes of the first bucket, the second, ...; the last limit repeats; empty: no limit
};

inline constexpr std::int64_t kDdpFirstBucketBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kDdpBucketBytes = std::int64_t{25} << 20;
// PyTorch's DistributedDataParallel from its second iteration on (reducer.cpp, compute_bucket_assignment_by_size and
// rebuild_buckets): the first bucket is small so that the first reduction starts early.
BucketRules ddp_rules(std::int64_t cap_bytes = kDdpBucketBytes);
BucketRules one_bucket();

struct GradientBucket {
  std::int64_t bytes = 0;
  std::int32_t part = -1;  // the bucket's part whose backward comes last; -1: unknown, the whole stage
  GroupKind group = GroupKind::data;
  std::vector<std::size_t> parameters = {};  // indices, in the order in which gradients are made
};

// Buckets of `parameters`, which are in forward order. Gradients are made in reverse order, and so are the buckets: the
// first one is full first. Parameters whose gradients differ in element size or group go into different buckets; the
// limits apply to each such kind on its own.
std::vector<GradientBucket> gradient_buckets(std::span<const Parameter> parameters, const BucketRules& rules);

// Adds reductions of gradients over data-parallel ranks to a step: REDUCE_GRAD tasks in lane reduce.

struct ReduceOptions {
  Comm comm = Comm::all_reduce;   // or reduce_scatter: each rank keeps its shard
  bool every_microbatch = false;  // false: gradients accumulate and are reduced after a stage's last microbatch
  // A bucket is reduced as soon as its last gradient is made. If false, buckets are reduced when the rank has made all
  // gradients, and with `every_microbatch` the rank waits for a microbatch's reductions before the next microbatch.
  bool overlapped = true;
  // Also sums the reduced gradients over groups of kind `replicas` (HSDP), in a separate lane that overlaps the
  // reduction of the next bucket.
  bool over_replicas = false;
};

// `buckets`: one list per stage of the step. Buckets of a stage are reduced in order, each after the kernel that makes
// its last gradient: the last B or W of the bucket's part, or of the action if its pieces have no parts (Piece::part).
// A task's part is the bucket's index. Throws a usage Error if a rank has no group of the bucket's kind.
void reduce_gradients(Step& step, std::span<const std::vector<GradientBucket>> buckets, const ReduceOptions& options);

// Adds a sum of gradients at the end of all other work of a group's ranks: of a matrix that first and last stage share
// (group `embedding`: the word embedding), or of parameters for which each tensor rank has seen only some of the rows
// (group `tensor`: norms under sequence parallelism). Ranks without such a group are unchanged.
void reduce_at_end(Step& step, GroupKind kind, std::int64_t bytes);

// Shards parameters over data-parallel ranks (ZeRO: Rajbhandari et al. 2019, arXiv:1910.02054; FSDP: Zhao et al. 2023,
// arXiv:2304.11277): UNSHARD tasks gather them, in lane gather, and RESHARD tasks free them. reduce_gradients() reduces
// gradients; its buckets may be the units. The ZeRO stages are
//   1  reduce-scatter of the last microbatch's gradients, gather_after_step()
//   2  reduce-scatter of every microbatch's gradients, gather_after_step()
//   3  shard_parameters(), and reduce-scatter of every microbatch's gradients

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
  // False: the backward of its parts reads no parameters, so that nothing is gathered for it (an embedding, whose
  // backward adds rows of gradients).
  bool in_backward = true;
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

// Offloads activations between forward and backward to the host's memory or to a file: OFFLOAD and LOAD tasks in lane
// copy, for each part of a stage (Rajbhandari et al. 2019, ZeRO-R's Pa+cpu, arXiv:1910.02054, section 6.1; Rajbhandari
// et al. 2021, ZeRO-Infinity, arXiv:2104.07857, section 5.1.2).

// Activations that a part keeps of one microbatch, and the time of each copy in picoseconds.
struct CopyCosts {
  std::int64_t bytes = 0;  // 0: no copies
  std::int64_t offload_ps = 0;
  std::int64_t load_ps = 0;
};

// `parts`: the parts of each stage, or one entry for a stage whose actions are not split. A *piece of work* is an
// uninterrupted run of a part's actions for one microbatch. Activations are offloaded when their forward has ended and
// loaded for the part's first recomputation or backward; each copy may overlap `ahead` other pieces of work. Later
// pieces wait for the offload, and no load starts earlier, so the device holds the activations of at most 2 `ahead` + 1
// pieces of work, however slow the copies are. Activations whose backward is within 2 `ahead` pieces of work of their
// forward stay on the device.
void offload_activations(Step& step, std::span<const std::vector<CopyCosts>> parts, std::int32_t ahead = 1);

// Offloads shards of gradients and weights to the host's memory or to files (ZeRO-Offload: Ren et al. 2021,
// arXiv:2101.06840, section 4; ZeRO-Infinity: Rajbhandari et al. 2021, arXiv:2104.07857, section 5): OFFLOAD tasks in
// lane copy and LOAD tasks in lane load.

// Time to offload the shard of a stage's bucket, in picoseconds. `adds`: the shard is added to the one of earlier
// microbatches, which has to be loaded and offloaded again.
using GradientCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t bucket, bool adds)>;
// Time to load the shard of a stage's unit, in picoseconds.
using ParameterCopyTime = std::function<std::int64_t(std::int32_t stage, std::int32_t unit)>;

// Offloads each bucket's shard after its last reduction and before the bucket is reduced again. Kernels after a
// reduction wait until all shards but the last `ahead` + 1 are offloaded, which bounds the shards on the device. Call
// after reduce_gradients().
void offload_gradients(Step& step, const GradientCopyTime& time, std::int32_t ahead);

// Loads the rank's own shard before each UNSHARD, which frees it: at most `ahead` + 1 shards are on the device or in
// flight. Call after shard_parameters().
void load_parameters(Step& step, const ParameterCopyTime& time, std::int32_t ahead);

// The update of the parameters at the end of a step.

enum class Barrier : std::uint8_t {
  none,  // a rank updates when its own gradients are reduced (Qi et al. 2023, section 4: validated afterwards)
  // An all-reduce of the gradients' norm over the group `world`, for clipping: no rank updates before all ranks have
  // all gradients.
  norm,
};

// Adds a STEP of the given time to each rank, in lane compute, after all of the rank's kernels and reductions.
void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier);

// Adds the previous step's update, which runs on each rank's host for the given time: a STEP in lane host from the
// beginning of this step. The STEP that add_optimizer() adds later waits for it (ZeRO-Offload's delayed parameter
// update: Ren et al. 2021, arXiv:2101.06840, section 5.2).
void update_during_step(Step& step, std::span<const std::int64_t> ps_of_rank);

// Adds a STEP of the given time per stage after each microbatch's gradients, reductions included, and before the rank's
// next kernel: PipeDream without a flush (Narayanan et al. 2019, section 3.3). Each STEP has the microbatch whose
// gradients it applies. No rank waits for the global gradient norm.
void add_updates(Step& step, std::span<const std::int64_t> ps_of_stage);

struct BucketUpdate {
  std::int64_t ps = 0;
  std::int32_t part = -1;  // as GradientBucket::part
  bool at_end = false;     // its gradient is summed once more at the end of the rank's work (reduce_at_end)
};

// Adds a STEP per gradient bucket, with the bucket's index as its part: the optimizer step inside the backward. Without
// reductions the STEP follows the kernel that makes the bucket's last gradient, like PyTorch's
// apply_optimizer_in_backward; with reductions it follows the last reduction of the next bucket, so that the backward
// continues while the bucket is reduced. `updates`: per stage, its buckets in the order of reduce_gradients(), which
// has to be called before. No rank waits for the global gradient norm.
void add_bucket_updates(Step& step, std::span<const std::vector<BucketUpdate>> updates);

// Fills a pipeline's bubbles with work that no other task of the step waits for, so that the step takes no longer:
// PipeFisher (Osawa et al. 2023, arXiv:2211.14133), whose work is K-FAC's. Work that does not fit into the bubbles of
// one step continues in the following steps; after several steps, when all is done, it starts again.

struct FillerItem {
  Task task;  // a kernel in lane compute; `amount` is its time in picoseconds
  // Index of a kernel of the rank, in the first of the steps, that has to run before; kNoKernel: none.
  std::uint32_t after_kernel = kNoKernel;
  std::vector<std::uint32_t> after_items = {};  // items, earlier in the rank's list, that have to run before

  static constexpr std::uint32_t kNoKernel = UINT32_MAX;
};

// `timeline`: when the step's tasks run without fillers, the same in each of the consecutive steps. `items`: the items
// of each rank, most urgent first. Returns the steps that do all items once; each rank's earliest bubbles are filled
// first. Times in which a collective of the rank runs are not bubbles, as it would slow a kernel down. Throws a usage
// Error if an item is longer than every bubble of its rank.
std::vector<Step> fill_bubbles(const Step& step, const StepTimeline& timeline,
                               std::span<const std::vector<FillerItem>> items);

// Work of a second-order optimizer on one matrix of a stage, in picoseconds.
struct SecondOrderMatrix {
  std::int32_t part = -1;               // part of the stage
  std::int64_t input_curvature_ps = 0;  // K-FAC's A, of the layer's input: after each microbatch's forward, or an equal
                                        // share after the forward of each slice
  std::int64_t output_curvature_ps = 0;  // K-FAC's B, of the gradient of the layer's output: after each backward
  std::int64_t input_inversion_ps = 0;   // after all microbatches of the step
  std::int64_t output_inversion_ps = 0;
};

// The items of each rank by PipeFisher's rules (section 3.1): curvature before inversions. `matrices`: one list per
// stage. A task's `what` is twice the matrix's index in the stage's list, plus one for the output's factor.
std::vector<std::vector<FillerItem>> second_order_items(const Step& step,
                                                        std::span<const std::vector<SecondOrderMatrix>> matrices);

// Idle time of each rank's compute lane in which none of its collectives runs, in picoseconds.
std::vector<std::int64_t> bubble_ps_of_ranks(const Step& step, const StepTimeline& timeline);

}  // namespace lockstep::schedules
