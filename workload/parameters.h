// Parameters of a model, whole and as a rank's share, and the buckets that hold their gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedules/passes/passes.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

// A parameter of a model, and a tensor-parallel rank's share.

// How tensor-parallel ranks split a parameter (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
enum class Split : std::uint8_t {
  none,     // each has the whole parameter
  rows,     // first axis: the outputs of a column-parallel linear layer, the words of a vocabulary
  columns,  // second axis: the inputs of a row-parallel one
};

// The number of tensor-parallel ranks that share a parameter, a rank's index among them, and their grid, if they form
// one: a matrix is then split in blocks (grid_product.h). Norms, biases and positions are split like the columns of the
// activations that they are added to or multiplied with, and other ranks have copies.
struct TensorRank {
  std::int32_t ranks = 1;
  std::int32_t index = 0;
  Grid grid = {};
};

struct Parameter {
  std::string name;                 // as in Hugging Face's GPT-2: "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  // whole, as kernels take it: a matrix is [outputs, inputs]
  Split split = Split::none;
  // Lengths of the blocks of the split axis, each of which is split, such as Q, K and V. Empty: one block.
  std::vector<std::int64_t> blocks = {};
  std::int32_t part = 0;  // part of the pipeline stage, in forward order
  float deviation = 0;    // initial values: normal with mean 0; if 0, all `fill`
  float fill = 0;
  // Name by which initial values are drawn, if not its own: a mixture's first expert starts like a dense MLP.
  std::string drawn_as = {};
  // A tile of another parameter (Layout::mlp_tiles) is rank `tile.index`'s share among `tile.ranks`, with its
  // initial values.
  std::shared_ptr<const Parameter> tile_of = {};
  TensorRank tile = {};
  bool expert = false;  // its gradient is reduced over the ranks that have the same experts
  bool decays = false;  // weight decay: matrices, not biases and norms
  bool words = false;   // a table of words: embedding, head

  std::int64_t elems() const;
};

// The shape of a rank's share. Rows that the ranks do not divide are padded at the end (words_per_rank); blocks and
// columns must be divisible, which is checked with the layout. (Not on a grid.)
std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks);
std::int64_t elems_of_share(const Parameter& parameter, const TensorRank& place);  // as many on all ranks

// Calls visit(share_begin, whole_begin, count) for runs of elements that are contiguous in both, ascending in the
// share. Padding is in no run.
void for_each_run(
    const Parameter& parameter, const TensorRank& place,
    const std::function<void(std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count)>& visit);

// The parameters of a stage, part by part.

// In forward order, with the names of Hugging Face's GPT-2. A stage with both embedding and head has a tied word
// embedding once, in part 0; one with only the head has it in the head's part (its gradient is then summed over both
// stages, and it starts from the same values). Of a mixture's experts, only the expert-parallel rank `expert_rank`'s;
// only their names depend on it.
std::vector<Parameter> parameters_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                     std::int32_t expert_rank = 0);

// Elements of a parameter on one tensor-parallel rank.
inline std::int64_t elems_of_rank(const Parameter& parameter, const Layout& layout) {
  return elems_of_share(parameter, {layout.tp, 0, layout.grid});
}

// Number of parameters of a stage on one tensor-parallel rank: in total, in its shard with ZeRO or FSDP, in its shard
// of a secondary copy (Layout::secondary_ranks), and in the largest part.
struct ElemCount {
  double whole = 0;
  double shard = 0;
  double secondary = 0;
  double largest_part = 0;
};
ElemCount count_elems(const Model& model, const Layout& layout, const StageSlice& slice);

// Index of a weight of a linear layer or a norm among a stage's parameters; the bias, if the model has one, follows.
struct WeightIndex {
  std::size_t weight = 0;
  bool has_bias = false;

  std::size_t bias() const { return weight + 1; }
  std::size_t end() const { return weight + (has_bias ? 2 : 1); }
  WeightIndex behind(std::size_t first) const { return {first + weight, has_bias}; }
};

// Indices at which parameters_of() puts the parameters of a part, counted from the part's first.
struct LayerIndices {
  // `expert_ranks`: of the layout, which split the experts. `tiles`: Layout::mlp_tiles.
  explicit LayerIndices(const Model& model, std::int32_t expert_ranks = 1, std::int32_t tiles = 1);
  WeightIndex norm1, qkv, projection, norm2;
  WeightIndex up, down;                               // in a dense MLP, or of a mixture's shared experts
  std::vector<WeightIndex> tiles_up, tiles_down;      // likewise, by tile: up and down are the first
  WeightIndex router;                                 // router of a mixture, and
  std::vector<WeightIndex> experts_up, experts_down;  // its experts on one rank
  std::size_t count;
};
struct EmbeddingIndices {
  explicit EmbeddingIndices(const Model& model) : count(model.learned_positions ? 2 : 1) {}
  std::size_t words = 0;
  std::size_t positions = 1;  // if they are learned
  std::size_t count;
};
struct HeadIndices {
  explicit HeadIndices(const Model& model);
  WeightIndex norm;
  std::size_t words;  // for a head that has a matrix of its own
};
// Index of the head's matrix among the parameters of its stage, where the head's first parameter is `head`.
std::size_t head_words_of(const Model& model, const StageSlice& slice, std::size_t head);

// The tile to whose unit a parameter belongs (Layout::mlp_tiles); -1: the unit of the rest of its part.
std::int32_t tile_unit_of(const Parameter& parameter);

// Index of the word embedding among a stage's parameters; their number if the stage has none.
std::size_t word_embedding_of(const std::vector<Parameter>& parameters);

// The groups over which tensor-parallel ranks may have terms of a gradient that are summed at the end of a step.
inline constexpr std::array kTensorGroups{schedules::GroupKind::tensor, schedules::GroupKind::tensor_row,
                                          schedules::GroupKind::tensor_column, schedules::GroupKind::tensor_depth};
// True if ranks of such a group have different gradients of the same part of a parameter, which must be summed: norms,
// if each rank has a share of the rows. All other whole parameters see all rows on every rank. In a grid also biases
// and positions, over the axes that do not split their columns.
bool is_partial_over(schedules::GroupKind kind, const Parameter& parameter, const Layout& layout);
// True for the first of the tensor-parallel ranks that have the same part of a parameter.
bool is_first_with(const Parameter& parameter, const Layout& layout, std::int32_t tensor_index);

// Parameters in order in a flat buffer that ranks can share evenly.

// Alignment in elements at which each parameter begins: 128 bytes in f32, the alignment that kernels prefer. Shards end
// at one, too.
inline constexpr std::int64_t kFlatGrain = 32;

// Elements [begin, end) of a flat buffer.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool empty() const { return end <= begin; }
};
inline FlatRange common_of(FlatRange a, FlatRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

struct FlatBucket {
  std::vector<FlatRange> places;  // [member]
  std::int64_t elems = 0;         // padding included: a multiple of shards * kFlatGrain

  // Equal shards, in the order of ranks.
  FlatRange shard(std::int32_t shards, std::int32_t index) const {
    return {elems / shards * index, elems / shards * (index + 1)};
  }
  // Ranges of members for which `chosen(member)` is true, within a range; neighbours, and the zeros between them, are
  // merged.
  template <class Chosen>
  std::vector<FlatRange> ranges_in(FlatRange wanted, const Chosen& chosen) const {
    std::vector<FlatRange> ranges;
    bool goes_on = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const FlatRange range = common_of(places[i], wanted);
      if (range.empty()) continue;
      const bool is_chosen = chosen(i);
      if (is_chosen && goes_on) ranges.back().end = range.end;
      if (is_chosen && !goes_on) ranges.push_back(range);
      goes_on = is_chosen;
    }
    return ranges;
  }
};

// `member_elems`: elements of the bucket's parameters, in memory order.
FlatBucket lay_out(std::span<const std::int64_t> member_elems, std::int32_t shards);

// Assigns a stage's parameters to buckets, which are stored, reduced and sharded together.

struct StagePlan {
  StageSlice place;
  bool tied = true;  // the head uses the word embedding's matrix
  std::vector<Parameter> parameters;
  // In the order in which their gradients become complete. Parameters of one bucket are reduced and sharded at once.
  std::vector<std::vector<std::size_t>> buckets;
};
StagePlan plan_of(const Model& model, const Layout& layout, const StageSlice& slice);

// Elements of a bucket that each rank of this layout updates, without padding: a shard's elements if ZeRO shards them.
std::int64_t updated_elems(const StagePlan& plan, std::size_t bucket, const Layout& layout);
// True if any of its gradients is summed once more at the end of the step (is_summed_over).
bool is_summed_at_end(const StagePlan& plan, std::size_t bucket, const Layout& layout);

// Buckets in the form that schedule passes take; bucket k is plan.buckets[k]. Bytes are counted for the parameters on
// one tensor-parallel rank, without padding.
std::vector<schedules::GradientBucket> gradient_buckets_of(const StagePlan& plan, const Layout& layout);
// Unit u is bucket number_of_buckets - 1 - u: gathers are in forward order, reductions in reverse.
std::vector<schedules::Unit> units_of(const StagePlan& plan, const Layout& layout);

// For each bucket, whether its weights have a secondary copy (Layout::secondary_ranks): if backwards gather them, which
// excludes the embedding; and not experts, which are sharded over other ranks.
std::vector<bool> has_secondary(const StagePlan& plan, const Layout& layout);

// Payload of the sum of gradients that are partial over a group (is_partial_over), the maximum over ranks; 0 if there
// is none.
std::int64_t partial_bytes(schedules::GroupKind kind, const std::vector<StagePlan>& plans, const Layout& layout);
// Payload of the sum of the word embedding's gradient over the stages that have it: of a shard if it is sharded.
std::int64_t tied_gradient_bytes(const StagePlan& plan, const Layout& layout);

// True if a rank's part of a parameter's gradient is summed over a group once more at the end of the step: the word
// embedding's over the stages that have it, or gradients for which each tensor-parallel rank has seen only some rows.
bool is_summed_over(schedules::GroupKind kind, const StagePlan& plan, std::size_t parameter, const Layout& layout);
// True if a rank counts a parameter in the norm of gradients; over all ranks each parameter counts once. Of ranks with
// the same shard or the same whole parameter, the first counts it; of tensor-parallel ranks with the same parameter,
// the first; of two stages with the word embedding, the first.
bool counts_in_norm(const StagePlan& plan, std::size_t parameter, const Layout& layout, const Coordinates& at);

}  // namespace lockstep::workload
