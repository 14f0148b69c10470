#include "workload/build_step.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "workload/memory.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::Op;
using schedules::Piece;
using Kind = OperationKind;

const Model& small() {
  static const Model model = parse_model("layers=4,hidden=16,heads=4,vocabulary=61,sequence=8,dropout=no");
  return model;
}
constexpr std::int64_t kRowsBytes = std::int64_t{2} * 8 * 16 * 2;  // b s h in bf16

schedules::StageRecipe recipe_of(const std::string& layout, const StageSlice& slice) {
  return workload::recipe_of(small(), parse_layout("microbatch=2," + layout), slice);
}
StageSlice whole() {
  return {.layers = small().layers, .embedding = true, .head = true};
}
StageSlice middle() {
  return {.layers = 1};
}

// Payload bytes of each kind of collective in lists.
std::map<Comm, std::int64_t> payload(const std::vector<const std::vector<Piece>*>& lists) {
  std::map<Comm, std::int64_t> bytes;
  for (const std::vector<Piece>* list : lists) {
    for (const Piece& piece : *list) {
      if (piece.comm != Comm::none) bytes[piece.comm] += piece.amount;
    }
  }
  return bytes;
}

std::vector<std::uint32_t> kernels_of(const std::vector<Piece>& pieces, std::int32_t part) {
  std::vector<std::uint32_t> kernels;
  for (const Piece& piece : pieces) {
    if (piece.comm == Comm::none && piece.part == part) kernels.push_back(piece.what);
  }
  return kernels;
}

TEST(PieceName, ComesBackFromItsNumber) {
  for (int kind = 0; kind <= static_cast<int>(Kind::loss); ++kind) {
    for (const Side side : {Side::forward, Side::input_gradient, Side::weight_gradient, Side::regather}) {
      const PieceName name{static_cast<Kind>(kind), side};
      EXPECT_EQ(piece_named(what_of(name)), name);
    }
    EXPECT_FALSE(name_of(static_cast<Kind>(kind)).empty());
  }
}

TEST(Recipe, OneTensorRankExchangesNothing) {
  for (const char* layout : {"recompute=full", "recompute=full,sp=yes"}) {
    const auto recipe = recipe_of(layout, whole());
    EXPECT_TRUE(payload({&recipe.forward, &recipe.backward, &recipe.input_gradient, &recipe.weight_gradient}).empty());
  }
}

// Megatron: 4 all-reduces of b s h a layer, 2 forward and 2 backward (8 bsh (t-1)/t elements sent).
TEST(Recipe, ALayerHasFourAllReduces) {
  const auto recipe = recipe_of("tp=4", middle());
  const std::map<Comm, std::int64_t> expected{{Comm::all_reduce, 4 * kRowsBytes}};
  EXPECT_EQ(payload({&recipe.forward, &recipe.backward}), expected);
  EXPECT_EQ(payload({&recipe.forward, &recipe.input_gradient, &recipe.weight_gradient}), expected);
}

// arXiv:2205.05198, section 4.2.2: as many bytes as gathers and scatters, and norms' outputs gathered again.
TEST(Recipe, SequenceParallelLayersGatherAndScatter) {
  const auto recipe = recipe_of("tp=4,sp=yes", middle());
  const std::map<Comm, std::int64_t> expected{{Comm::all_gather, (4 + 2) * kRowsBytes},
                                              {Comm::reduce_scatter, 4 * kRowsBytes}};
  EXPECT_EQ(payload({&recipe.forward, &recipe.backward}), expected);
  EXPECT_EQ(payload({&recipe.forward, &recipe.input_gradient, &recipe.weight_gradient}), expected);
}

std::vector<Kind> repeated_in(const std::vector<Piece>& pieces) {
  std::vector<Kind> repeated;
  for (const Piece& piece : pieces) {
    if (piece.op == Op::recompute) repeated.push_back(piece_named(piece.what).kind);
  }
  return repeated;
}

TEST(Recipe, FullRecomputationStopsEarlyWhereItIsAskedTo) {
  const std::vector<Kind> needed{Kind::attention_norm, Kind::qkv,      Kind::core,
                                 Kind::projection,     Kind::mlp_norm, Kind::up};
  const auto early = recipe_of("tp=4,recompute=full,early_stop=yes", middle());
  EXPECT_EQ(payload({&early.backward})[Comm::all_reduce], 3 * kRowsBytes);
  EXPECT_EQ(repeated_in(early.backward), needed);
  EXPECT_EQ(repeated_in(early.input_gradient), needed);
  std::vector<Kind> all = needed;
  all.push_back(Kind::down);
  all.push_back(Kind::mlp_residual);
  const auto late = recipe_of("tp=4,recompute=full", middle());
  EXPECT_EQ(payload({&late.backward})[Comm::all_reduce], 4 * kRowsBytes);
  EXPECT_EQ(repeated_in(late.backward), all);
}

std::vector<Kind> kinds_around(const std::vector<Piece>& pieces, Kind kind, bool exchanges) {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece_named(piece.what).kind != kind || (piece.comm != Comm::none) != exchanges) continue;
    for (std::size_t near = i - 1; near <= i + 1; ++near) kinds.push_back(piece_named(pieces.at(near).what).kind);
  }
  return kinds;
}

// ZeRO-R's partitioned checkpoints: the first layer of each group frees its input except for a part after its last
// use, and the whole is gathered before the group is made again: b s h bytes more for each.
TEST(Recipe, PartsOfInputsAreGatheredBeforeTheirLayersAreMadeAgain) {
  const std::string layout = "tp=4,recompute=full,recompute_every=2";
  const auto whole_inputs = recipe_of(layout, whole());
  const auto parts = recipe_of(layout + ",partition_activations=yes", whole());
  EXPECT_EQ(parts.forward.size(), whole_inputs.forward.size() + 2);
  EXPECT_EQ(kinds_around(parts.forward, Kind::keep_input, false),
            (std::vector{Kind::mlp_norm, Kind::keep_input, Kind::up, Kind::mlp_norm, Kind::keep_input, Kind::up}));
  for (const auto& lists : {std::pair(&parts.backward, &whole_inputs.backward),
                            std::pair(&parts.input_gradient, &whole_inputs.input_gradient)}) {
    EXPECT_EQ(payload({lists.first})[Comm::all_gather], payload({lists.second})[Comm::all_gather] + 2 * kRowsBytes);
    const std::vector<Kind> near = kinds_around(*lists.first, Kind::keep_input, true);
    ASSERT_EQ(near.size(), 6u);
    for (const std::size_t last : {2U, 5U}) EXPECT_EQ(near[last], Kind::attention_norm);
  }
  const double kept = activations_of(small(), parse_layout("microbatch=2," + layout), {.layers = 4}).kept;
  EXPECT_EQ(
      activations_of(small(), parse_layout("microbatch=2,partition_activations=yes," + layout), {.layers = 4}).kept,
      kept / 4);
}

// ZeRO-Infinity's memory-centric tiling: as many products, of as many FLOPs, and sums of tiles between them.
TEST(Recipe, TilesOfAnMlpComeOneByOne) {
  const auto tiled = recipe_of("mlp_tiles=2,recompute=full,early_stop=yes", middle());
  const auto mlp_of = [](const std::vector<Piece>& pieces, Op op, Side side) {
    std::string text;
    for (const Piece& piece : pieces) {
      const PieceName name = piece_named(piece.what);
      if (piece.op != op || name.side != side || tile_of(name) < 0) continue;
      text += (name.kind == Kind::up ? "u" : name.kind == Kind::down ? "d" : "+") + std::to_string(tile_of(name));
    }
    return text;
  };
  EXPECT_EQ(mlp_of(tiled.forward, Op::forward, Side::forward), "u0d0u1d1+1") << "and the residual";
  EXPECT_EQ(mlp_of(tiled.backward, Op::recompute, Side::forward), "u0u1") << "nobody needs what they add to";
  EXPECT_EQ(mlp_of(tiled.backward, Op::backward, Side::input_gradient), "d1u1d0u0");
  EXPECT_EQ(mlp_of(tiled.backward, Op::backward, Side::weight_gradient), "d1u1d0u0");
  for (const char* layout : {"", ",tp=2,recompute=selective"}) {
    const auto kept = [&](const std::string& more) {
      return activations_of(small(), parse_layout("microbatch=2" + more + layout), {.layers = 1});
    };
    EXPECT_EQ(kept(",mlp_tiles=4").kept, kept("").kept);
    EXPECT_EQ(kept(",mlp_tiles=4").later, kept("").later);
  }
}

TEST(Recipe, SelectiveRecomputationRepeatsTheCoreOfEachLayer) {
  const auto recipe = recipe_of("recompute=selective", whole());
  for (const auto* list : {&recipe.backward, &recipe.input_gradient}) {
    EXPECT_EQ(repeated_in(*list), std::vector<Kind>(static_cast<std::size_t>(small().layers), Kind::core));
  }
}

// The loss exchanges three floats a token, not logits.
TEST(Recipe, TheHeadGathersThreeFloatsAToken) {
  const auto recipe = recipe_of("tp=4", {.layers = 1, .head = true});
  EXPECT_EQ(payload({&recipe.forward})[Comm::all_gather], 4 * 16 * 3 * 4);
}

// Reductions start after the last kernel of a part: it has to complete all gradients, the norm's among them.
TEST(Recipe, TheLastKernelOfAPartCompletesItsGradients) {
  for (const char* layout : {"tp=2", "tp=2,sp=yes"}) {
    const auto recipe = recipe_of(layout, whole());
    for (std::int32_t part = 0; part < whole().num_parts(); ++part) {
      PieceName full{Kind::attention_norm, Side::input_gradient};
      PieceName split{Kind::qkv, Side::weight_gradient};
      if (part == 0) full = split = {Kind::embed, Side::weight_gradient};
      if (part == whole().num_parts() - 1) {
        full = {Kind::head_norm, Side::input_gradient};
        split = {Kind::logits, Side::weight_gradient};
      }
      EXPECT_EQ(piece_named(kernels_of(recipe.backward, part).back()), full);
      EXPECT_EQ(piece_named(kernels_of(recipe.weight_gradient, part).back()), split);
    }
  }
}

TEST(Recipe, SplitListsHaveTheKernelsOfTheFullBackward) {
  const auto recipe = recipe_of("tp=2,sp=yes", whole());
  for (std::int32_t part = 0; part < whole().num_parts(); ++part) {
    std::vector<std::uint32_t> together = kernels_of(recipe.backward, part);
    std::vector<std::uint32_t> split = kernels_of(recipe.input_gradient, part);
    for (const std::uint32_t what : kernels_of(recipe.weight_gradient, part)) split.push_back(what);
    std::sort(together.begin(), together.end());
    std::sort(split.begin(), split.end());
    EXPECT_EQ(together, split);
  }
  for (const Piece& piece : recipe.backward) EXPECT_TRUE(piece.comm != Comm::none || piece.op == Op::backward);
  for (const Piece& piece : recipe.weight_gradient) {
    EXPECT_TRUE(piece.comm != Comm::none || piece.op == Op::weight_gradient);
  }
}

// A collective that overlaps needs a kernel to overlap with, and one that waits for it, in the same list.
TEST(Recipe, NoListEndsWithAnOverlap) {
  for (const char* layout :
       {"tp=2", "tp=2,sp=yes", "tp=2,recompute=full", "tp=2,sp=yes,recompute=full,early_stop=yes"}) {
    const auto recipe = recipe_of(layout, whole());
    for (const auto* list : {&recipe.forward, &recipe.backward, &recipe.input_gradient, &recipe.weight_gradient}) {
      ASSERT_GE(list->size(), 2U);
      EXPECT_FALSE(list->back().overlaps_next || (list->end() - 2)->overlaps_next) << layout;
    }
  }
}

// The exchange between nodes, or the only one, starts before the shared experts, and the next piece but one waits for
// it: forward after all of their work, backward after their weights' gradient.
TEST(Recipe, DispatchOverlapsWithSharedExperts) {
  const auto around = [](const std::string& fields, const std::string& layout, bool backward) {
    const Model model =
        parse_model("layers=1,hidden=16,heads=4,vocabulary=61,sequence=8,dropout=no,experts=8" + fields);
    const auto recipe = workload::recipe_of(model, parse_layout(layout), middle());
    const std::vector<Piece>& pieces = backward ? recipe.backward : recipe.forward;
    std::vector<Kind> kinds;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].overlaps_next) continue;
      for (const Piece& piece : {pieces[i], pieces.at(i + 1)}) kinds.push_back(piece_named(piece.what).kind);
      EXPECT_EQ(piece_named(pieces.at(i + 1).what).side, backward ? Side::weight_gradient : Side::forward);
    }
    return kinds;
  };
  const std::string shared = ",shared_hidden=32";
  const std::string groups = ",expert_groups=2,groups_per_token=1";
  for (const bool backward : {false, true}) {
    EXPECT_EQ(around(shared, "dp=4,ep=4", backward), (std::vector{Kind::dispatch, Kind::shared_experts}));
    EXPECT_EQ(around(shared + groups, "dp=4,ep=4,dispatch=tokens", backward),
              (std::vector{Kind::dispatch_over_groups, Kind::shared_experts}));
    EXPECT_EQ(around(shared, "dp=4,ep=4,overlap_tp=no", backward), std::vector<Kind>{});
    EXPECT_EQ(around("", "dp=4,ep=4", backward), std::vector<Kind>{});
  }
}

// A price goes to every kernel, and to nothing else.
TEST(Recipe, PricesEveryKernel) {
  const KernelPrice price = [](const KernelCall&) { return 7; };
  const auto recipe = workload::recipe_of(small(), parse_layout("tp=2"), whole(), price);
  for (const Piece& piece : recipe.forward) {
    if (piece.comm == Comm::none) {
      EXPECT_EQ(piece.amount % 7, 0);
    }
    EXPECT_GT(piece.amount, 0);
  }
}

// Stages and slices that a layout leaves to be chosen.

Model uneven() {
  return parse_model("layers=10,hidden=64,heads=4,vocabulary=4096,sequence=256,dropout=no");
}

double stage_time(const Model& model, const Layout& layout, std::int32_t stage) {
  const StageWork work =
      work_of(model, layout, slice_of(model, layout, stages_per_pipe(layout), stage), {.kernel = declared_price});
  double time = 0;
  for (const auto* pieces : {&work.recipe.forward, &work.recipe.backward}) {
    for (const schedules::Piece& piece : *pieces) time += static_cast<double>(piece.amount);
  }
  return time;
}

double longest_stage(const Model& model, const Layout& layout) {
  double longest = 0;
  for (std::int32_t s = 0; s < stages_per_pipe(layout); ++s) longest = std::max(longest, stage_time(model, layout, s));
  return longest;
}

// All ways to give ten layers to the stages, by counting up.
double best_of_all(const Model& model, Layout layout) {
  const std::int32_t stages = stages_per_pipe(layout);
  double best = 1e300;
  layout.layers_of.assign(static_cast<std::size_t>(stages), 0);
  for (;;) {
    const auto sum = std::accumulate(layout.layers_of.begin(), layout.layers_of.end(), std::int64_t{0});
    const bool inner =
        std::all_of(layout.layers_of.begin() + 1, layout.layers_of.end() - 1, [](auto n) { return n > 0; });
    if (sum == model.layers && inner) best = std::min(best, longest_stage(model, layout));
    auto digit = layout.layers_of.begin();
    while (digit != layout.layers_of.end() && *digit == model.layers) *digit++ = 0;
    if (digit == layout.layers_of.end()) return best;
    ++*digit;
  }
}

TEST(Balance, NoOtherStagesHaveAShorterLongestOne) {
  for (const char* text : {"pp=2", "pp=3", "pp=4"}) {
    const Layout asked = parse_layout(std::string(text) + ",layers=balanced");
    const Layout chosen = balanced(uneven(), asked, declared_price);
    EXPECT_FALSE(chosen.balanced_layers);
    EXPECT_EQ(why_invalid(uneven(), chosen), "");
    EXPECT_EQ(longest_stage(uneven(), chosen), best_of_all(uneven(), asked)) << text;
    EXPECT_LT(longest_stage(uneven(), chosen), longest_stage(uneven(), parse_layout(text))) << text;
  }
}

TEST(Balance, AVocabularyLargerThanAStageLeavesItsHeadAlone) {
  const Model model = parse_model("layers=4,hidden=64,heads=4,vocabulary=200000,sequence=64,dropout=no");
  const Layout chosen = balanced(model, parse_layout("pp=4,layers=balanced"), declared_price);
  EXPECT_EQ(chosen.layers_of.back(), 0);
  EXPECT_EQ(parse_layout(text_of(chosen)).layers_of, chosen.layers_of);
}

TEST(Balance, SlicesTakeEqualTimes) {
  const Model model = parse_model("layers=4,hidden=64,heads=4,vocabulary=256,sequence=4096,dropout=no");
  const Layout asked = parse_layout("pp=4,microbatches=8,schedule=seq1f1b,slices=4,slicing=balanced");
  const Layout chosen = balanced(model, asked, declared_price);
  ASSERT_EQ(chosen.slice_tokens.size(), 4U);
  EXPECT_TRUE(std::is_sorted(chosen.slice_tokens.rbegin(), chosen.slice_tokens.rend()));
  EXPECT_GT(chosen.slice_tokens.front(), 1024);
  EXPECT_EQ(std::accumulate(chosen.slice_tokens.begin(), chosen.slice_tokens.end(), std::int64_t{0}), 4096);
  EXPECT_EQ(parse_layout(text_of(chosen)).slice_tokens, chosen.slice_tokens);
}

TEST(Balance, WhatIsGivenStays) {
  const Layout given = parse_layout("pp=3,layers=3:5:2");
  EXPECT_EQ(text_of(balanced(uneven(), given, declared_price)), text_of(given));
  const Layout impossible = parse_layout("pp=20,layers=balanced");
  EXPECT_EQ(text_of(balanced(uneven(), impossible, declared_price)), text_of(impossible));
}

// FLOPs and kept bytes of all slices add up to the whole, except for the head's and norms' uneven sums.
TEST(Slices, WorkAndMemoryOfSlicesAddUp) {
  const Model model = parse_model("layers=2,hidden=64,heads=4,vocabulary=256,sequence=256,dropout=no");
  const Layout whole = parse_layout("pp=1,microbatches=2");
  const Layout sliced = parse_layout("pp=1,microbatches=2,schedule=seq1f1b,slices=128:64:32:32");
  const auto flops = [](const KernelCall& call) { return static_cast<std::int64_t>(cost_of(call).flops); };
  const auto sum = [&](const Layout& layout) {
    double total = 0;
    for (const StageWork& work : works_of(model, layout, schedule_of(layout), {.kernel = flops})) {
      for (const schedules::Piece& piece : work.recipe.forward) total += static_cast<double>(piece.amount);
    }
    return total;
  };
  EXPECT_NEAR(sum(sliced) / sum(whole), 1, 1e-6);
  std::int64_t bytes = 0;
  for (const StageWork& work : works_of(model, sliced, schedule_of(sliced))) bytes += work.message_bytes;
  EXPECT_EQ(bytes, works_of(model, whole, schedule_of(whole)).front().message_bytes);
}

TEST(Slices, LayoutsThatCannotHaveThemAreRefused) {
  const auto refusal = [](const std::string& more) {
    return why_invalid(uneven(), parse_layout("pp=2,microbatches=4,schedule=seq1f1b,slices=4" + more));
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(",cp=2"), "slices is 4, and cp is 2; allowed: cp=1, or slices=1");
  EXPECT_EQ(
      refusal(",recompute=full"),
      "slices is 4, and recompute is full, which would keep no keys for later slices; allowed: selective or none");
  EXPECT_EQ(why_invalid(uneven(), parse_layout("pp=2,schedule=seq1f1b,slices=100:100")),
            "slices have 200 tokens; allowed: those of a sequence, 256");
  EXPECT_EQ(why_invalid(uneven(), parse_layout("pp=2,schedule=1f1b,slices=2")),
            "schedule 1f1b: slices is 2; allowed: 1, as the schedule takes microbatches whole");
}

}  // namespace
}  // namespace lockstep::workload
