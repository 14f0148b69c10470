#include "workload/layout.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "testing/core/refusal.h"
#include "workload/rules.h"

namespace lockstep::workload {
namespace {

using schedules::GroupKind;
using Members = std::vector<std::int64_t>;
using Groups = std::set<Members>;

Layout sizes(std::int32_t tp, std::int32_t cp, std::int32_t ep, std::int32_t dp, std::int32_t pp) {
  return {.dp = dp, .tp = tp, .pp = pp, .cp = cp, .ep = ep, .microbatches = pp};
}

// The groups of a kind, by asking each rank for the members of its own.
Groups groups_of(const Layout& layout, GroupKind kind, const char* model = "mixtral-8x7b") {
  Groups groups;
  for (const schedules::Group& folded : groups_of_places(parse_model(model), layout, schedule_of(layout))) {
    if (folded.kind != kind) continue;
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      const std::int32_t place = coordinates_of(layout, rank).pp;
      if (std::find(folded.ranks.begin(), folded.ranks.end(), place) == folded.ranks.end()) continue;
      Members members;
      for (const RankSet& run : members_of(layout, folded, rank)) {
        for (std::int64_t i = 0; i < run.count; ++i) members.push_back(run.at(i));
      }
      EXPECT_EQ(std::count(members.begin(), members.end(), rank), 1) << rank;
      EXPECT_EQ(static_cast<std::int64_t>(members.size()), folded.members);
      groups.insert(members);
    }
  }
  return groups;
}

TEST(Groups, AreMegatronsLists) {
  const Layout layout = sizes(2, 1, 1, 2, 4);
  EXPECT_EQ(groups_of(layout, GroupKind::tensor),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::data),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::embedding), Groups{}) << "mixtral's head has a matrix of its own";
}

// Four nodes of two ranks each: a token goes from a node to another between ranks in the same place, and on within one.
TEST(Groups, OfExpertRanksAreNodesAndPlacesInThem) {
  Layout layout = sizes(1, 1, 8, 1, 1);
  layout.dp = layout.ep = 8;
  layout.dispatch_tokens = true;
  const char* const model = "mixtral-8x7b,expert_groups=4";
  EXPECT_EQ(groups_of(layout, GroupKind::expert_group, model), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::expert_groups, model), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::expert_groups), Groups{}) << "without groups of experts there is one hop";
}

// Two squares of tensor ranks for each of two data ranks, numbered row by row.
TEST(Groups, OfAGridAreItsRowsColumnsAndDepths) {
  Layout layout = sizes(8, 1, 1, 2, 1);
  layout.grid = parse_grid("2x2x2");
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_row),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_column),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_depth),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  layout.grid = parse_grid("2.5d:2x2x2");
  layout.order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_row),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  layout.tp = 4;
  layout.grid = parse_grid("2x2");
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_depth), Groups{}) << "a square has no depth";
}

// Members of a group differ in one coordinate.
TEST(Groups, OfAKindHaveEveryRankOnceAndDifferInTheirCoordinateOnly) {
  const Layout layout = sizes(2, 3, 2, 4, 2);
  struct Differs {
    GroupKind kind;
    bool tp, line, pp;
  };
  for (const Differs& differs :
       {Differs{GroupKind::tensor, true, false, false}, Differs{GroupKind::context, false, true, false},
        Differs{GroupKind::expert, false, true, false}, Differs{GroupKind::expert_data, false, true, false},
        Differs{GroupKind::data, false, true, false}, Differs{GroupKind::world, true, true, true}}) {
    std::set<std::int64_t> seen;
    for (const Members& group : groups_of(layout, differs.kind)) {
      const Coordinates first = coordinates_of(layout, group.front());
      for (std::size_t i = 0; i < group.size(); ++i) {
        EXPECT_TRUE(seen.insert(group[i]).second) << group[i];
        const Coordinates at = coordinates_of(layout, group[i]);
        EXPECT_TRUE(differs.tp || at.tp == first.tp) << name_of(differs.kind);
        EXPECT_TRUE(differs.line || (at.cp == first.cp && at.dp == first.dp)) << name_of(differs.kind);
        EXPECT_TRUE(differs.pp || at.pp == first.pp) << name_of(differs.kind);
        EXPECT_TRUE(differs.kind != GroupKind::expert_data || at.ep == first.ep);
        if (differs.kind != GroupKind::context) continue;
        EXPECT_EQ(at.cp, static_cast<std::int64_t>(i));
        EXPECT_EQ(at.dp, first.dp);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.ranks()) << name_of(differs.kind);
  }
}

TEST(Groups, CoordinatesMakeTheRankAgain) {
  Layout l = sizes(4, 2, 2, 3, 5);
  for (const bool context_first : {true, false}) {
    if (!context_first) l.order = {Axis::dp, Axis::pp, Axis::cp, Axis::tp};
    for (std::int64_t rank = 0; rank < l.ranks(); ++rank) {
      const Coordinates at = coordinates_of(l, rank);
      EXPECT_EQ(rank_at(l, at), rank);
      EXPECT_EQ((context_first ? at.cp + l.cp * at.dp : at.dp + l.dp * at.cp) % l.ep, at.ep);
    }
  }
}

// In any order of the axes a kind's groups have every rank once, ascending, with neighbours in the line next to each
// other; and the group of a rank is the same, asked for by any of its members.
TEST(Groups, OfAnyOrderDivideTheRanks) {
  Layout layout = sizes(2, 3, 2, 4, 2);
  do {
    for (const GroupKind kind : {GroupKind::tensor, GroupKind::context, GroupKind::expert, GroupKind::expert_data,
                                 GroupKind::data, GroupKind::world}) {
      std::set<std::int64_t> seen;
      for (const Members& group : groups_of(layout, kind)) {
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end())) << text_of(layout) << name_of(kind);
        const Coordinates first = coordinates_of(layout, group.front());
        for (const std::int64_t rank : group) {
          EXPECT_TRUE(seen.insert(rank).second) << text_of(layout) << name_of(kind) << rank;
          const Coordinates at = coordinates_of(layout, rank);
          EXPECT_TRUE(kind == GroupKind::world || at.pp == first.pp) << text_of(layout) << name_of(kind);
          EXPECT_TRUE(kind != GroupKind::tensor || (at.cp == first.cp && at.dp == first.dp));
          EXPECT_TRUE(kind != GroupKind::context || (at.tp == first.tp && at.dp == first.dp));
          EXPECT_TRUE(kind != GroupKind::expert_data || (at.tp == first.tp && at.ep == first.ep));
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.ranks()) << text_of(layout) << name_of(kind);
    }
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
}

TEST(Groups, OfAnOrderAreNumberedByIt) {
  Layout layout = sizes(2, 1, 1, 2, 2);
  layout.order = {Axis::pp, Axis::dp, Axis::cp, Axis::tp};
  EXPECT_EQ(groups_of(layout, GroupKind::tensor), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::data), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(coordinates_of(layout, 1).pp, 1);
}

TEST(Groups, OfHybridShardsAreNeighbours) {
  Layout layout = sizes(1, 1, 1, 8, 1);
  layout.zero = 3;
  layout.shard_ranks = 4;
  EXPECT_EQ(groups_of(layout, GroupKind::data), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::replicas), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Groups, OfSecondaryCopiesAndOfHopsAreNeighboursInASetOfShards) {
  Layout layout = sizes(1, 1, 1, 16, 1);
  layout.zero = 3;
  layout.shard_ranks = 8;
  layout.secondary_ranks = 4;
  EXPECT_EQ(groups_of(layout, GroupKind::secondary),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(secondary_index(layout, coordinates_of(layout, 13)).shard, 1);
  layout.near_ranks = 2;
  EXPECT_EQ(groups_of(layout, GroupKind::near).size(), 8U);
  EXPECT_EQ(groups_of(layout, GroupKind::near).count({10, 11}), 1U);
  EXPECT_EQ(groups_of(layout, GroupKind::far), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
}

// Opposite pipes (Chimera): the first place of one is the last of the other, and both have the same parameters.
TEST(Groups, OfDataRanksJoinOppositePipes) {
  Layout layout = sizes(2, 1, 1, 2, 4);
  layout.schedule = "chimera";
  layout.microbatches = 4;
  for (const schedules::Group& group : groups_of_places(parse_model("nano"), layout, schedule_of(layout))) {
    if (group.kind != schedules::GroupKind::data) continue;
    const std::int64_t first = std::int64_t{group.ranks.front()} * 4;
    const std::vector<RankSet> runs = members_of(layout, group, first + 1);
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0].first, first + 1);
    EXPECT_EQ(runs[0].stride, 2);
    EXPECT_EQ(runs[1].first, (3 - group.ranks.front()) * 4 + 1);
    EXPECT_EQ(runs[0].count + runs[1].count, group.members);
  }
}

std::string refusal_of(const char* text) {
  return core::refusal_of([&] { parse_layout(text); });
}

TEST(LayoutText, IsReadAndWritten) {
  const Layout layout = parse_layout("tp=8, pp=64,dp=6,microbatch=1,batch=3072,recompute=full,sp=yes,grad_dtype=bf16");
  EXPECT_EQ(layout.ranks(), 3072);
  EXPECT_EQ(layout.microbatches, 512);
  EXPECT_EQ(layout.global_batch(), 3072);
  EXPECT_TRUE(layout.sequence_parallel);
  EXPECT_EQ(layout.recompute, Recompute::full);
  EXPECT_EQ(layout.gradient, core::DType::bf16);
  EXPECT_EQ(text_of(parse_layout(text_of(layout))), text_of(layout));
  EXPECT_EQ(text_of(layout), "tp=8,pp=64,dp=6,sp=yes,batch=3072,recompute=full,grad_dtype=bf16");
}

TEST(LayoutText, EveryFieldComesBack) {
  const char* all =
      "tp=2,pp=4,dp=8,cp=2,ep=4,order=cp-tp-pp-ep-dp,sp=yes,schedule=interleaved,chunks=2,layers=3:6x4:3,microbatch=2,"
      "batch=64,zero=3,shard_ranks=4,secondary_ranks=2,near_ranks=2,reshard=no,recompute=selective,recompute_every=2,"
      "partition_activations=yes,mlp_tiles=2,early_stop=yes,flash=no,bucket_mb=12.5,overlap_grads=no,overlap_params=no,"
      "overlap_tp=no,overlap_p2p=yes,scatter_gather=yes,dtype=f16,grad_dtype=f16";
  EXPECT_EQ(text_of(parse_layout(all)), all);
  EXPECT_EQ(parse_layout(all).layers_of, (std::vector<std::int32_t>{3, 4, 4, 4, 4, 4, 4, 3}));
}

TEST(LayoutText, AGridSaysHowManyTensorRanksThereAre) {
  EXPECT_EQ(text_of(parse_layout("tp_grid=2.5d:2x2x2,microbatch=4")),
            "tp=8,pp=1,dp=1,tp_grid=2.5d:2x2x2,microbatch=4,batch=4");
  EXPECT_EQ(text_of(parse_layout_over(parse_layout("tp_grid=2x2"), "tp_grid=none")), "tp=4,pp=1,dp=1,batch=1");
  EXPECT_EQ(refusal_of("tp_grid=2"),
            "layout: tp_grid=2: not a grid; allowed: QxQ for 2-D, QxQxQ for 3-D, 2.5d:QxQxD with D at most Q; Q from 2 "
            "to 8");
}

TEST(LayoutText, OffloadNamesAPlaceForEachKind) {
  const Layout layout = parse_layout("offload=optimizer:file+parameters:host");
  EXPECT_EQ(layout.offload, (OffloadPlaces{.optimizer = Offload::file, .parameters = Offload::host}));
  EXPECT_TRUE(layout.offload.any_in(Offload::host));
  EXPECT_EQ(text_of(layout.offload), "optimizer:file+parameters:host");
  EXPECT_EQ(text_of(parse_layout("offload=optimizer:host").offload), "host");
  EXPECT_EQ(parse_layout("offload=file").offload, OffloadPlaces{.optimizer = Offload::file});
  EXPECT_FALSE(parse_layout("offload=none").offload.any());
  const std::string all = "optimizer:file+gradients:host+parameters:file+activations:host";
  EXPECT_EQ(text_of(parse_layout("offload=" + all).offload), all);
  EXPECT_EQ(text_of(parse_layout("offload=activations:host+gradients:file").offload),
            "gradients:file+activations:host");
}

TEST(LayoutText, OffloadRefusesWhatNamesNoKindOrNoPlace) {
  const auto refuses = [](const char* text, const char* what) {
    EXPECT_NE(refusal_of(text).find(what), std::string::npos) << text << ": " << refusal_of(text);
  };
  refuses("offload=disk", "offload=disk: 'disk' is not a location; allowed: none, host or file");
  refuses("offload=weights:host", "'weights' is not a kind of tensor");
  refuses("offload=optimizer:host+gradients", "'gradients' has no location");
  refuses("offload=optimizer:host+optimizer:file", "'optimizer' is given twice");
  refuses("offload=gradients:", "'' is not a location");
  refuses("offload=gradients:none", "'gradients:none' moves nothing");
}

TEST(LayoutText, MicrobatchesStandInPlaceOfTheBatch) {
  EXPECT_EQ(text_of(parse_layout("dp=2,microbatch=3,microbatches=4")),
            text_of(parse_layout("dp=2,microbatch=3,batch=24")));
  EXPECT_EQ(refusal_of("batch=4,microbatches=4"),
            "layout: batch and microbatches are both given; allowed: one of these fields");
}

TEST(LayoutText, ChangesALayoutThatIsThere) {
  const Layout base = parse_layout("dp=2,batch=8,dtype=f32,zero=1");
  EXPECT_EQ(text_of(parse_layout_over(base, "zero=2")), "tp=1,pp=1,dp=2,batch=8,zero=2,dtype=f32");
  EXPECT_EQ(parse_layout_over(base, "dp=4").microbatches, base.microbatches);
  EXPECT_EQ(parse_layout_over(base, "dtype=bf16,microbatches=3").microbatches, 3);
}

TEST(LayoutText, IsRefusedWithTheFieldAndWhatIsAllowed) {
  EXPECT_EQ(refusal_of("tp=eight"), "layout: tp=eight: not an integer; allowed: an integer from 1 to 2147483647");
  EXPECT_EQ(refusal_of("dp=0"), "layout: dp=0: out of range; allowed: an integer from 1 to 2147483647");
  EXPECT_EQ(refusal_of("recompute=half"), "layout: recompute=half: not known; allowed: none selective full");
  EXPECT_EQ(refusal_of("order=tp-cp-dp,pp=2"),
            "layout: order=tp-cp-dp lacks pp, which has 2 ranks; allowed: an order of all axes with more than one "
            "rank");
  EXPECT_EQ(parse_layout("tp=2,pp=4,order=pp-tp").order, (AxisOrder{Axis::cp, Axis::dp, Axis::pp, Axis::tp}));
  EXPECT_NE(refusal_of("order=ep-tp-cp-dp-pp").find("ep is not directly before dp"), std::string::npos);
  EXPECT_NE(refusal_of("order=tp-cp-dp-sp").find("'sp' is not a kind of parallelism"), std::string::npos);
  EXPECT_NE(refusal_of("order=tp-tp-dp-pp").find("an axis occurs twice"), std::string::npos);
  EXPECT_EQ(refusal_of("tp=2,tp=4"), "layout: tp=4: is given twice; allowed: each field once");
  EXPECT_EQ(refusal_of("zero=4"), "layout: zero=4: out of range; allowed: an integer from 0 to 3");
  EXPECT_EQ(refusal_of("tp=1000000,dp=1000000"), "layout: tp x cp x dp x pp is 1e+12; allowed: at most 1.07374e+09");
  EXPECT_EQ(refusal_of("schedule=2f2b").rfind("schedule '2f2b' is not known; nearest: 1f1b; allowed: naive gpipe", 0),
            0u);
  EXPECT_NE(refusal_of("tensor=8").find("layout: tensor=8: no such field; allowed: tp pp dp cp"), std::string::npos);
  EXPECT_NE(refusal_of("tp").find("layout: tp: has no '='"), std::string::npos);
  EXPECT_EQ(refusal_of("layers=3:x4"),
            "layout: layers=3:x4: neither a list of layers nor balanced; allowed: balanced, or layers of each stage or "
            "stages x layers, separated by colons: 7:8x14:7");
  EXPECT_NE(refusal_of("tp=2,").find("layout: an empty field: has no '='"), std::string::npos);
  EXPECT_NE(refusal_of("bucket_mb=-1").find("out of range"), std::string::npos);
  EXPECT_EQ(refusal_of("dp=3,batch=7"),
            "layout: batch is 7, which is not a multiple of dp x microbatch, 3; allowed: such as 6 or 9");
  EXPECT_EQ(refusal_of("dp=4,batch=2"),
            "layout: batch is 2, which is not a multiple of dp x microbatch, 4; allowed: such as 4");
  EXPECT_EQ(refusal_of("dtype=f64"), "layout: dtype=f64: not known; allowed: f32 bf16 f16");
}

struct Refusal {
  const char* model;
  const char* layout;
  const char* answer;
};

TEST(LayoutRefusal, SaysWhatIsAllowed) {
  for (const Refusal& row : {
           Refusal{"gpt2-124m,vocabulary=51200", "tp=5", "tp is 5, and heads is 12; allowed: 1 2 3 4 6 12"},
           Refusal{"llama3-70b", "tp=16", "tp is 16, and kv_heads is 8; allowed: 1 2 4 8"},
           Refusal{"nano", "pp=5,batch=5", "layers is 4, and there are 5 stages; allowed: at most one stage a layer"},
           Refusal{"nano", "dtype=f16,grad_dtype=bf16",
                   "grad_dtype is bf16, and dtype is f16; allowed: f32, or as dtype"},
           Refusal{"gpt3-175b", "ep=2,dp=2", "ep is 2; allowed: 1, as the model has no experts"},
           Refusal{"mixtral-8x7b", "ep=3,dp=3", "ep is 3, and experts is 8; allowed: 1 2 4 8"},
           Refusal{"mixtral-8x7b", "ep=4,dp=2", "ep is 4, and dp x cp is 2; allowed: 1 2"},
           Refusal{"mixtral-8x7b,expert_groups=4", "dp=2,ep=2,dispatch=tokens",
                   "dispatch is tokens, ep is 2, and expert_groups is 4; allowed: dispatch=copies, or a multiple of "
                   "expert_groups as ep, so that ranks are in one group"},
           Refusal{"mixtral-8x7b", "tp=2",
                   "sp is no; allowed: yes, as experts with tp above 1 exchange tokens that are spread over tensor "
                   "ranks"},
           Refusal{"gpt3-175b", "zero=3,dp=8,shard_ranks=3", "shard_ranks is 3, and dp x cp is 8; allowed: 1 2 4 8"},
           Refusal{"mixtral-8x7b", "dp=8,ep=4,zero=3,shard_ranks=4",
                   "shard_ranks is 4; allowed: 0, as ep is 4 and experts are sharded over all ranks that have them"},
           Refusal{"gpt3-175b", "dp=8,shard_ranks=4", "shard_ranks is 4; allowed: 0, as zero is 0"},
           Refusal{"gpt3-175b", "tp=8,partition_activations=yes",
                   "partition_activations is yes, and recompute is not full; allowed: no, or recompute=full"},
           Refusal{"gpt3-175b", "recompute=full,partition_activations=yes",
                   "partition_activations is yes, and tp is 1; allowed: no, or tp above 1"},
           Refusal{"gpt3-175b", "tp=8,sp=yes,recompute=full,partition_activations=yes",
                   "partition_activations is yes, and tensor ranks share rows already (sp, tp_grid); allowed: no, or "
                   "sp=no without a grid"},
           Refusal{"gpt3-175b", "mlp_tiles=5",
                   "tp x mlp_tiles is 5, and ffn_hidden is 49152; allowed: 1 2 3 4 6 8 12 16 24 32 48 64 96 128 192 "
                   "256 ..."},
           Refusal{"gpt3-175b", "tp=8,sp=yes,mlp_tiles=2",
                   "mlp_tiles is 2, and tensor ranks share rows (sp, tp_grid); allowed: 1, or sp=no"},
           Refusal{"mixtral-8x7b", "mlp_tiles=2", "mlp_tiles is 2, and the model has experts; allowed: 1"},
           Refusal{"gpt3-175b", "zero=2,dp=8,secondary_ranks=4",
                   "secondary_ranks is 4, and zero is 2; allowed: 0, or zero=3"},
           Refusal{"gpt3-175b", "zero=3,dp=8,secondary_ranks=4,reshard=no",
                   "secondary_ranks is 4, and reshard is no, so that a backward gathers nothing; allowed: 0, or "
                   "reshard=yes"},
           Refusal{"gpt3-175b", "zero=3,dp=8,secondary_ranks=8",
                   "secondary_ranks is 8, and dp x cp is 8; allowed: 0, or a divisor of that from 2 to 4"},
           Refusal{"gpt3-175b", "zero=3,dp=8,secondary_ranks=3",
                   "secondary_ranks is 3, and dp x cp is 8; allowed: 1 2 4 8"},
           Refusal{"gpt3-175b", "zero=3,dp=8,near_ranks=2",
                   "near_ranks is 2, and no reduce-scatter travels as codes; allowed: 0, or zero=1, 2 or 3 with "
                   "compression=int8, int4, fp8 or sign"},
           Refusal{"gpt3-175b", "zero=3,dp=8,shard_ranks=4,compression=int4,near_ranks=2",
                   "near_ranks is 2, and compression is of all-reduces over replicas of shards; allowed: 0, or "
                   "shard_ranks=0"},
           Refusal{"megatron-530b", "pp=35,layers=34x3", "layers names 34 stages; allowed: 35"},
           Refusal{"megatron-530b", "pp=35,batch=35,layers=34x3:4", "layers of the stages add up to 106; allowed: 105"},
           Refusal{"gpt3-175b", "pp=4,batch=4,schedule=dualpipe",
                   "schedule dualpipe: microbatches is 4; allowed: at least 8"},
           Refusal{"gpt3-175b", "pp=4,batch=8,chunks=2",
                   "schedule 1f1b: chunks is 2; allowed: 1, as the schedule has its own stages"},
       }) {
    EXPECT_EQ(why_invalid(parse_model(row.model), parse_layout(row.layout)), row.answer) << row.layout;
  }
}

TEST(LayoutRefusal, IsEmptyForWhatWasRun) {
  EXPECT_EQ(why_invalid(parse_model("megatron-529.6b"),
                        parse_layout("tp=8,pp=35,dp=9,batch=2520,schedule=interleaved,chunks=3,recompute=full")),
            "");
  EXPECT_EQ(why_invalid(parse_model("llama3-405b"), parse_layout("tp=8,pp=16,dp=2,batch=64,layers=7:14x8:7")), "");
  EXPECT_EQ(why_invalid(parse_model("gpt3-175b"), parse_layout("tp=8,pp=8,batch=64,schedule=zb_v")), "");
}

TEST(Stages, FollowTheSchedulesOwnPlacement) {
  EXPECT_EQ(stages_per_pipe(parse_layout("pp=8,schedule=1f1b")), 8);
  EXPECT_EQ(stages_per_pipe(parse_layout("pp=8,schedule=interleaved,chunks=3")), 24);
  EXPECT_EQ(stages_per_pipe(parse_layout("pp=8,schedule=zb_v")), 16);
  EXPECT_EQ(stages_per_pipe(parse_layout("pp=8,schedule=dualpipe")), 8);
  EXPECT_EQ(stages_per_pipe(parse_layout("pp=8,schedule=dualpipe_v")), 16);
}

TEST(Stages, HaveEveryLayerOnce) {
  const Model model = parse_model("llama3-405b");
  const Layout layout = parse_layout("pp=16,layers=7:14x8:7");
  std::int64_t next = 0;
  for (std::int32_t stage = 0; stage < 16; ++stage) {
    const StageSlice slice = slice_of(model, layout, 16, stage);
    EXPECT_EQ(slice.first_layer, next);
    EXPECT_EQ(slice.embedding, stage == 0);
    EXPECT_EQ(slice.head, stage == 15);
    next += slice.layers;
  }
  EXPECT_EQ(next, model.layers);
}

TEST(Layout, AVocabularyThatTensorRanksDoNotDivideIsPadded) {
  const Model model = parse_model("gpt2-124m");
  EXPECT_EQ(why_invalid(model, parse_layout("tp=2")), "");
  EXPECT_EQ(words_per_rank(model, parse_layout("tp=1")), 50257);
  EXPECT_EQ(words_per_rank(model, parse_layout("tp=2")), 25129);
}

TEST(Rules, WhatTheTrainerDoesNotHaveIsRefused) {
  const auto refusal = [](const char* model, const char* layout) {
    return why_not_trained(parse_model(model), parse_layout(layout));
  };
  EXPECT_EQ(refusal("nano", "tp=2,dp=2,zero=3"), "");
  EXPECT_EQ(refusal("llama3-8b", "tp=1"), "");
  EXPECT_NE(
      refusal("mixtral-8x7b", "tp=2,sp=yes").find("does not have experts on tensor-parallel ranks; allowed: tp=1"),
      std::string::npos);
  EXPECT_NE(refusal("gpt3-125m", "tp=1").find("models without dropout"), std::string::npos);
  EXPECT_NE(refusal("llama-nano,kv_heads=2", "cp=2,cp_way=colossal,flash=no").find("allowed: cp_way=ring"),
            std::string::npos);
  EXPECT_NE(refusal("nano", "flash=no").find("allowed: flash=yes"), std::string::npos);
  EXPECT_EQ(refusal("nano", "pp=2,microbatches=2,schedule=pipedream_2bw"), "");
  EXPECT_NE(refusal("nano", "pp=2,schedule=pipedream").find("old weights"), std::string::npos);
  EXPECT_NE(refusal("nano", "pp=2,schedule=bpipe,microbatches=4").find("pp of at least 4"), std::string::npos);
  EXPECT_NE(refusal("nano", "pp=2,schedule=terapipe,microbatches=4").find("slices of at least 2"), std::string::npos);
  // Features that the trainer lacks come before what makes the layout illegal.
  EXPECT_NE(refusal("nano", "tp=3,flash=no").find("allowed: flash=yes"), std::string::npos);
  EXPECT_EQ(refusal("nano", "tp=3").rfind("layout: tp is 3, and heads is 4; allowed: 1 2 4", 0), 0U);
}

}  // namespace
}  // namespace lockstep::workload
