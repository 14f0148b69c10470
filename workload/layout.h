// The layout of a training step over ranks: the size of each kind of parallelism, what is sharded, recomputed and
// overlapped, the pipeline's schedule, and the dtypes; and the groups of ranks that follow from it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "kernels/optimizer/rules.h"
#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/compression.h"
#include "workload/context_list.h"
#include "workload/grid_product.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"

namespace lockstep::core {
struct OptionText;
}

namespace lockstep::workload {

enum class Recompute : std::uint8_t {
  none,
  selective,  // the core of attention: scores, softmax, dropout, and the product with the values (arXiv:2205.05198)
  full,       // whole layers, from the input of every recompute_every-th
};

// 8-bit floats in the products of transformer layers, and the granularity of scales (kernels/fp8/fp8.h).
enum class Fp8 : std::uint8_t {
  none,
  tensor,  // Micikevicius et al. 2022 (arXiv:2209.05433)
  row,     // per row of activations, weights and gradients
  block,   // per tile: 1 x 128 of activations and gradients, 128 x 128 of weights (DeepSeek-V3, arXiv:2412.19437)
};

// When parameters are updated.
enum class Update : std::uint8_t {
  step_end,    // all at once, when the norm of all gradients is known
  per_bucket,  // each gradient bucket after its last reduction, between the kernels of the backward
};

// The kinds of parallelism that number the ranks.
enum class Axis : std::uint8_t { tp, cp, dp, pp };
using AxisOrder = std::array<Axis, 4>;
inline constexpr AxisOrder kMegatronOrder{Axis::tp, Axis::cp, Axis::dp, Axis::pp};

struct Layout {
  std::int32_t dp = 1;                     // data-parallel ranks
  std::int32_t tp = 1;                     // tensor-parallel ranks
  Grid grid = {};                          // grid of the tp ranks, in two or three dimensions; one rank: no grid
  std::int32_t pp = 1;                     // pipeline ranks
  std::int32_t cp = 1;                     // context-parallel ranks: each has a part of every sequence
  ContextWay cp_way = ContextWay::zigzag;  // how they share attention (workload/context_list.h)
  std::int32_t ep = 1;                     // expert-parallel ranks, a divisor of dp x cp
  double skew = 1;                         // rows of the busiest expert-parallel rank over the mean (dropless experts)
  bool dispatch_tokens = false;  // a token is sent once to each rank that has any of its experts, not once per expert
  AxisOrder order = kMegatronOrder;  // order of rank numbers: neighbours differ in the first axis
  std::int32_t zero = 0;         // 0; 1: optimizer; 2: also gradients; 3: also weights (FSDP) are sharded over dp x cp
  std::int32_t shard_ranks = 0;  // neighbouring ranks that share a set of shards; the others have replicas
                                 // (hybrid sharding, HSDP: Zhao et al. 2023, arXiv:2304.11277, section 3.2.2); 0: all
  // zero=3: neighbouring ranks that share a secondary copy of the weights: a forward gathers them over all
  // shards, a backward over these ranks (ZeRO++'s hpZ: Wang et al. 2023, arXiv:2306.10209); 0: there is none.
  std::int32_t secondary_ranks = 0;
  // Neighbouring ranks that sum gradients first if reduce-scatters use codes; their sums then travel between sets of
  // neighbours (ZeRO++'s qgZ, in two hops); 0: one hop among all.
  std::int32_t near_ranks = 0;
  std::string schedule = "1f1b";                                 // from schedules/generators/catalogue.h
  std::int32_t chunks = 1;                                       // stages per rank, if the schedule takes them
  std::shared_ptr<const schedules::Schedule> own_schedule = {};  // a user's checked schedule, instead of `schedule`
  std::int32_t microbatches = 1;                                 // per data-parallel rank and step
  std::int64_t microbatch_size = 1;                              // sequences
  std::vector<std::int32_t> layers_of = {};                      // layers of each stage; empty: spread evenly
  bool balanced_layers = false;                                  // layers_of is to be chosen (workload/build_step.h)
  std::int32_t slices = 1;                      // token slices of a microbatch, if the schedule takes them
  std::vector<std::int64_t> slice_tokens = {};  // tokens of each slice; empty: as even as possible
  bool balanced_slices = false;                 // slice_tokens is to be chosen (workload/build_step.h)
  std::int64_t bucket_cap_bytes = 25LL << 20;   // bytes of gradients; 0: one bucket per stage
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  std::int32_t recompute_every = 1;  // layers between kept inputs
  // With full recomputation each tensor-parallel rank keeps only its part of an input that all have (ZeRO-R's
  // partitioned activation checkpoints, Rajbhandari et al. 2019, arXiv:1910.02054, section 6.1).
  bool partition_activations = false;
  // A dense MLP runs as this many tiles, sequentially: rows of its first matrix and columns of its second, which
  // ZeRO 3 gathers tile by tile (memory-centric tiling, ZeRO-Infinity, arXiv:2104.07857, section 5.1.3).
  std::int32_t mlp_tiles = 1;
  bool early_stop = false;  // recomputation of a layer ends with the last result that its backward needs
  core::DType compute = core::DType::bf16;  // weights and activations; with f32 master weights if it is 16 bits
  core::DType gradient = core::DType::f32;  // gradients as kept and reduced
  Fp8 fp8 = Fp8::none;
  bool fp8_delayed = false;       // scales come from previous steps
  std::int32_t fp8_history = 16;  // number of those steps
  OffloadPlaces offload = {};
  std::int32_t offload_ahead = 1;  // copies to the device begin this many uses before the one that they are for
  bool delayed_update = false;  // an update runs during the next step, whose gradients are taken at the older weights
                                // (ZeRO-Offload, section 5.2: delayed parameter update)
  Update update = Update::step_end;
  kernels::OptimizerKind optimizer = kernels::OptimizerKind::adamw;
  // For f32 gradients: in all-reduces over data-parallel ranks or replicas of shards; if there are neither, in
  // reduce-scatters.
  Compression compression = {};
  CompressionWay weight_compression = CompressionWay::none;  // zero=3: in all-gathers of weights (ZeRO++'s qwZ)
  bool reshard = true;            // ZeRO 3: free weights after the forward, and gather them again
  bool flash = true;              // attention never writes its scores to memory
  bool overlap_gradients = true;  // buckets are reduced during the backward; otherwise after it
  bool prefetch = true;           // ZeRO 3: units are prefetched
  // ZeRO 3 as in DeepSpeed in 2021: every matrix is gathered, and reduced, separately, as a list of one tensor per
  // rank, each of which the host copies; and again between a layer's recomputation and its backward.
  bool gather_lists = false;
  bool graphs = false;     // the host launches kernels as CUDA graphs, not operator by operator
  bool zero_cta = false;   // NCCL's zero-CTA policy: collectives on copy engines take no thread blocks from kernels
  bool overlap_tp = true;  // tensor-parallel reductions of input gradients overlap with weight gradients; so do context
                           // ranks' first exchange, and, with shared experts, the dispatch
  bool overlap_p2p = false;     // the compute lane does not wait for its messages to be sent
  bool scatter_gather = false;  // each tensor-parallel rank sends only its part (arXiv:2104.04473, section 4.1)

  std::int32_t ranks() const { return tp * cp * dp * pp; }
  bool has_grid() const { return grid.side > 1; }
  bool shares_rows() const { return sequence_parallel || has_grid(); }  // between layers, over tensor-parallel ranks
  std::int64_t global_batch() const { return microbatch_size * microbatches * dp; }  // sequences per step
};

// Parses "tp=8,pp=64,dp=6,microbatch=1,batch=3072,recompute=full". Throws a usage Error that names the field and valid
// values. layout_fields() lists the fields and their values, one per line.
Layout parse_layout(std::string_view text);
// The same with `base` instead of the defaults.
Layout parse_layout_over(const Layout& base, std::string_view text);
// Sets a field of that name; a refusal has the name that `value` bears.
void set_field(Layout& layout, std::string_view field, const core::OptionText& value);
std::vector<std::string> layout_fields();
// The text that makes this layout: all fields that differ from the defaults, and always tp, pp, dp and batch.
std::string text_of(const Layout& layout);

// Returns why a layout does not fit a model, with valid values ("tp is 5, and heads is 12; allowed: 1 2 3 4 6 12").
// Empty if it fits.
std::string why_invalid(const Model& model, const Layout& layout);

// With a causal mask, as in all models.
inline ContextShape context_of(const Layout& layout) {
  return {.way = layout.cp_way, .ranks = layout.cp};
}

// Number of tensor-parallel ranks among which heads, and columns within layers, are spread.
inline std::int32_t column_ranks(const Layout& layout) {
  return layout.has_grid() ? layout.grid.side : layout.tp;
}
// Number of parts of a microbatch's rows that tensor-parallel ranks have between layers.
inline std::int64_t row_parts(const Layout& layout) {
  if (layout.has_grid()) return divisors_of(layout.grid).rows;
  return layout.sequence_parallel ? layout.tp : 1;
}
// Vocabulary words of each of these ranks. A vocabulary that cannot be spread evenly is padded, so that all have the
// same number.
inline std::int64_t words_per_rank(const Model& model, const Layout& layout) {
  const std::int64_t parts = layout.has_grid() ? divisors_of(layout.grid).outputs : layout.tp;
  return (model.vocabulary + parts - 1) / parts * (parts / column_ranks(layout));
}

schedules::PipelineShape shape_of(const Layout& layout);
// The schedule that the layout names, or the user's own.
schedules::Schedule schedule_of(const Layout& layout);
// True if its schedule moves kept activations to other ranks.
bool evicts_activations(const Layout& layout);
// Number of versions of the weights that its schedule trains on; 1 for a user's own schedule.
schedules::Versions versions_of(const Layout& layout);
// Stages of one pipe; some schedules have a fixed number per rank (ZB-V has two), which only their lists show.
std::int32_t stages_per_pipe(const Layout& layout);
// Pipes of the schedule, each with a copy of the model: 2 in opposite directions (Chimera, DualPipe), otherwise 1.
std::int32_t pipes_of(const Layout& layout);

// The part of the model in one stage of a pipe.
struct StageSlice {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = false;
  bool head = false;
  // The slice of each sequence that is processed at a time, if microbatches are sliced; 0 tokens: the whole sequence.
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;

  // Parts in forward order: the embedding if it is here, the layers, the head if it is here.
  std::int32_t num_parts() const { return static_cast<std::int32_t>(layers) + (embedding ? 1 : 0) + (head ? 1 : 0); }
  std::int32_t part_of_layer(std::int64_t layer) const {
    return static_cast<std::int32_t>(layer - first_layer) + (embedding ? 1 : 0);
  }
  // True for stages that differ only in their position, and so cost the same.
  bool like(const StageSlice& other) const {
    return layers == other.layers && embedding == other.embedding && head == other.head &&
           first_token == other.first_token && tokens == other.tokens;
  }
};
// `stage` counts within its pipe; `stages` is stages_per_pipe(layout), or a given schedule's. If the layout does
// not set the layers per stage, they are spread evenly, and the first layers % stages stages have one more. With
// `token_slice` the work covers one slice of a microbatch; otherwise a whole microbatch.
StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage);
StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage,
                    std::int32_t token_slice);
// Tokens of each slice of a sequence; its length if it is not sliced.
std::vector<std::int64_t> tokens_of_slices(const Model& model, const Layout& layout);
// The model whose sequences are a slice of this one's.
Model of_tokens(const Model& model, const StageSlice& slice);

// The groups of ranks. Ranks are numbered in the layout's order of axes, by default as Megatron does: tensor first,
// then context, then data, then pipeline. Experts are spread over the context and data ranks, taken as one line, whose
// inner axis is the one that comes first in the order.
//
//   rank = tp + t (cp + c (dp + d pp))     position in the line: cp + c dp = ep + e edp     (order tp-cp-ep-dp-pp)

struct Coordinates {
  std::int32_t tp = 0;
  std::int32_t dp = 0;
  std::int32_t pp = 0;
  std::int32_t cp = 0;
  std::int32_t ep = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
// Distance between ranks whose coordinates differ by 1 on this axis and on no other.
std::int64_t stride_of(const Layout& layout, Axis axis);
Coordinates coordinates_of(const Layout& layout, std::int64_t rank);
std::int32_t rank_at(const Layout& layout, const Coordinates& at);  // `ep` follows from the others
// True for the first of the tensor-parallel ranks that compute the same losses: it counts them.
bool counts_losses(const Layout& layout, const Coordinates& at);

// ---- ranks that have the same parameters

// Data-parallel and context-parallel ranks; with two pipes, the ranks at position pp - 1 - p together with those at
// position p. These give their number, a rank's index, and the rank of an index: neighbours come first, then the
// opposite position.
std::int32_t data_ranks_of(const Layout& layout);
std::int32_t data_index_of(const Layout& layout, const Coordinates& at);
Coordinates data_rank_at(const Layout& layout, const Coordinates& at, std::int32_t index);

// The effective ZeRO stage: 0 if a set of shards is on one rank.
std::int32_t zero_of(const Layout& layout);
// True if each microbatch's gradients change the weights at once (schedules::add_updates), as in PipeDream. Sharded
// gradients do so at the end of the step.
bool updates_every_microbatch(const Layout& layout);
// Number of neighbouring data ranks that share a set of shards (or, without shards, reduce whole gradients) among
// themselves, and number of replicas of the set. The rank of index i has shard i % shards_of() of replica i /
// shards_of().
std::int32_t shards_of(const Layout& layout);
std::int32_t replicas_of(const Layout& layout);
// The number of ranks that share a parameter's shards, and a rank's index among them.
struct ShardIndex {
  std::int32_t shards = 1;
  std::int32_t shard = 0;
};
ShardIndex shard_index(const Layout& layout, const Coordinates& at, bool of_expert);
// The neighbours that share a secondary copy of the weights (Layout::secondary_ranks), and a rank's index among them.
ShardIndex secondary_index(const Layout& layout, const Coordinates& at);
// Number of ranks that share what expert-parallel ranks have in common.
std::int32_t expert_shards_of(const Layout& layout);

// ---- groups

// Evenly spaced ranks: first, first + stride, ...
struct RankSet {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 1;
  std::int64_t at(std::int64_t i) const { return first + stride * i; }
};

// The groups of a step that has one rank for each position in the pipeline: each names the positions and the actual
// number of its members. There are no groups of one member, except for data and world.
std::vector<schedules::Group> groups_of_places(const Model& model, const Layout& layout,
                                               const schedules::Schedule& schedule);
// The members of the actual group that contains `rank`.
std::vector<RankSet> members_of(const Layout& layout, const schedules::Group& folded, std::int64_t rank);

}  // namespace lockstep::workload
