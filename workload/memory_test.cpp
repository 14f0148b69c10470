#include "workload/memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generators/catalogue.h"
#include "workload/build_step.h"
#include "workload/operations.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

// FLOPs of products and attention.
double flops_of(const std::vector<KernelCall>& calls) {
  double flops = 0;
  for (const KernelCall& call : calls) flops += call.count * matrix_flops_of(call);
  return flops;
}

struct Flops {
  double forward = 0;
  double backward = 0;
};
Flops flops_of(const std::vector<Operation>& ops) {
  Flops flops;
  for (const Operation& op : ops) {
    flops.forward += flops_of(op.forward);
    flops.backward += flops_of(op.input_gradient) + flops_of(op.weight_gradient);
  }
  return flops;
}

// The FLOPs of kernels equal the formula: 24 s b h^2 (1 + s / 6h) per layer forward, twice that backward, and 2 s b h
// V.
TEST(Operations, DoTheFlopsThatAreCounted) {
  for (const char* name :
       {"megatron-22b", "llama3-70b", "mixtral-8x7b,sequence=4096", "mixtral-8x7b,sequence=4096,shared_hidden=4096"}) {
    const Model m = parse_model(name);
    for (const char* text : {"tp=1,flash=no", "tp=8,sp=yes,flash=no,microbatch=2", "tp=4,sp=yes,cp=2,flash=no"}) {
      const Layout layout = parse_layout(text);
      const double share = tokens_of(m, layout) / layout.tp;  // tokens of a microbatch that are one rank's work
      const TokenFlops token = token_flops(m);
      Flops layer = flops_of(layer_operations(m, layout));
      if (m.experts > 0 && layout.tp > 1) layer.forward = layer.backward / 2;  // see below
      const double expected = share * (token.layers + token.attention) / static_cast<double>(m.layers);
      // Sequence-parallel ranks share out the router's product as well.
      EXPECT_NEAR(layer.forward / expected, 1, 1e-9) << name << " " << text;
      EXPECT_NEAR(layer.backward / expected, 2, 1e-9) << name << " " << text;
      EXPECT_NEAR(flops_of(head_operations(m, layout)).forward / (share * token.head), 1, 1e-9) << name << " " << text;
    }
  }
}

TEST(Operations, OfFlashAttentionSkipWhatIsMasked) {
  const Model m = parse_model("megatron-22b");
  const TokenFlops token = token_flops(m);
  const double tokens = tokens_of(m, parse_layout("tp=1"));
  const Flops layer = flops_of(layer_operations(m, parse_layout("tp=1")));
  const double matrices = tokens * token.layers / static_cast<double>(m.layers);
  const double scores = tokens * token.attention / static_cast<double>(m.layers);
  // Attention counts its exponentials, and the diagonal in full.
  EXPECT_NEAR(layer.forward, matrices + scores / 2, 0.03 * scores / 2);
  EXPECT_NEAR(layer.backward, 2 * matrices + 2.5 * scores / 2, 0.03 * 2.5 * scores / 2);
}

struct Moved {
  std::map<Comm, double> forward;
  std::map<Comm, double> backward;
};
Moved moved_by(const std::vector<Operation>& ops, GroupKind group) {
  Moved moved;
  for (const Operation& op : ops) {
    if (op.forward_exchange.group == group) moved.forward[op.forward_exchange.comm] += op.forward_exchange.bytes;
    if (op.backward_exchange.group == group) moved.backward[op.backward_exchange.comm] += op.backward_exchange.bytes;
    if (op.regather.group == group) moved.backward[op.regather.comm] += op.regather.bytes;
  }
  return moved;
}

// Four all-reduces of b s h per layer; or four all-gathers and four reduce-scatters, and two more gathers during the
// backward's products.
TEST(Operations, ExchangeWhatMegatronDoes) {
  const Model m = parse_model("megatron-22b");
  const double bsh = 2 * static_cast<double>(m.sequence * m.hidden);
  const Moved tensor = moved_by(layer_operations(m, parse_layout("tp=8")), GroupKind::tensor);
  EXPECT_EQ(tensor.forward.at(Comm::all_reduce), 2 * bsh);
  EXPECT_EQ(tensor.backward.at(Comm::all_reduce), 2 * bsh);
  const Moved sequence = moved_by(layer_operations(m, parse_layout("tp=8,sp=yes")), GroupKind::tensor);
  EXPECT_EQ(sequence.forward.at(Comm::all_gather), 2 * bsh);
  EXPECT_EQ(sequence.forward.at(Comm::reduce_scatter), 2 * bsh);
  EXPECT_EQ(sequence.backward.at(Comm::all_gather), 4 * bsh);
  EXPECT_EQ(sequence.backward.at(Comm::reduce_scatter), 2 * bsh);
  EXPECT_TRUE(moved_by(layer_operations(m, parse_layout("tp=1")), GroupKind::tensor).forward[Comm::all_reduce] == 0);
}

TEST(Operations, SendEachTokenToItsExpertsAndBack) {
  const Model m = parse_model("mixtral-8x7b,sequence=4096");
  const double row = 2 * static_cast<double>(m.sequence * m.hidden);
  const Moved moved = moved_by(layer_operations(m, parse_layout("dp=8,ep=8")), GroupKind::expert);
  EXPECT_EQ(moved.forward.at(Comm::all_to_all), 2 * 2 * row) << "two experts per token; there and back";
  EXPECT_EQ(moved.backward.at(Comm::all_to_all), 2 * 2 * row);
  EXPECT_EQ(moved_by(layer_operations(m, parse_layout("dp=8")), GroupKind::expert).forward.count(Comm::all_to_all), 0u);
}

TEST(Operations, ContextRanksMoveWhatTheirListSays) {
  const Model m = parse_model("llama3-8b");
  const double rows = static_cast<double>(m.sequence) / 4;
  const double keys = 2 * 2 * rows * static_cast<double>(m.kv_heads * m.head_size);
  const double queries = 2 * rows * static_cast<double>(m.heads * m.head_size);
  const auto moved = [&](const char* layout) {
    return moved_by(layer_operations(m, parse_layout(layout)), GroupKind::context);
  };
  // Around a ring of four in three shifts; backward the keys again, and their gradients.
  for (const char* layout : {"cp=4,cp_way=ring", "cp=4"}) {
    EXPECT_EQ(moved(layout).forward.at(Comm::shift), 3 * keys);
    EXPECT_EQ(moved(layout).backward.at(Comm::shift), 6 * keys);
  }
  EXPECT_EQ(moved("cp=4,cp_way=allgather").forward.at(Comm::all_gather), 4 * keys);
  EXPECT_EQ(moved("cp=4,cp_way=allgather").backward.at(Comm::all_gather), 4 * keys);
  EXPECT_EQ(moved("cp=4,cp_way=allgather").backward.at(Comm::reduce_scatter), 4 * keys);
  EXPECT_EQ(moved("cp=4,cp_way=ulysses").forward.at(Comm::all_to_all), 2 * queries + keys);
  EXPECT_EQ(moved("cp=4,cp_way=ulysses").backward.at(Comm::all_to_all), 2 * queries + keys);
}

// The largest message of any rank, in each turn.
TEST(Operations, OfBalancedContextRanksHaveTheLoadOfTheirTurns) {
  const Model m = parse_model("gpt3-13b,dropout=no");
  const auto core_flops = [&](const std::string& layout) {
    double flops = 0;
    for (const Operation& op : layer_operations(m, parse_layout(layout))) {
      if (op.kind == OperationKind::core) flops += flops_of(op.forward);
    }
    return flops;
  };
  const double alone = core_flops("cp=1");
  EXPECT_NEAR(core_flops("cp=8,cp_way=zigzag") / alone, 1.0 / 8, 2e-3);
  EXPECT_NEAR(core_flops("cp=8,cp_way=ulysses") / alone, 1.0 / 8, 2e-3);
  EXPECT_NEAR(core_flops("cp=8,cp_way=allgather") / alone, 1.0 / 8, 2e-3);
  // The last rank has 7.5 of 8 blocks of 64, of which half are seen: nearly twice the even share.
  EXPECT_NEAR(core_flops("cp=8,cp_way=ring") / alone, 7.5 / 32, 2e-3);
}

// DeepSeek-V3's routing (arXiv:2412.19437, sections 2.1.2 and 3.2.2): 256 experts on 8 nodes, 8 a token, of 4 nodes at
// most. What crosses between nodes is a row for each node, and not a copy for each expert.
TEST(Operations, NodeLimitedRoutingSendsATokenOnceToANode) {
  const std::string shape =
      "hidden=7168,layers=1,heads=128,head_size=56,ffn_hidden=2048,experts=256,experts_per_token=8,sequence=4096";
  const Layout layout = parse_layout("dp=64,ep=64,dispatch=tokens");
  const double row = 2.0 * 4096 * 7168;
  const auto rows_over = [&](const std::string& groups, GroupKind kind) {
    const auto moved = moved_by(layer_operations(parse_model(shape + groups), layout), kind).forward;
    return moved.count(Comm::all_to_all) == 0 ? 0 : moved.at(Comm::all_to_all) / 2 / row;  // there and back
  };
  const auto reached = [](double parts, double experts, int choices) {
    double none = 1;
    for (int i = 0; i < choices; ++i) none *= (experts - experts / parts - i) / (experts - i);
    return parts * (1 - none);
  };
  EXPECT_NEAR(rows_over("", GroupKind::expert), reached(64, 256, 8), 1e-9);
  EXPECT_NEAR(rows_over(",expert_groups=8", GroupKind::expert_groups), reached(8, 256, 8), 1e-9);
  EXPECT_NEAR(rows_over(",expert_groups=8,groups_per_token=4", GroupKind::expert_groups), reached(4, 128, 8), 1e-9);
  EXPECT_NEAR(rows_over(",expert_groups=8,groups_per_token=4", GroupKind::expert_group), reached(32, 128, 8), 1e-9);
  EXPECT_LT(rows_over(",expert_groups=8,groups_per_token=4", GroupKind::expert_groups), 4);
  EXPECT_EQ(rows_over(",expert_groups=8,groups_per_token=4", GroupKind::expert), 0);
}

// Work on a layer's four products, sharded as they are; curvature is of both sides of each.
TEST(SecondOrder, WorkIsThatOfTheLayersMatrices) {
  const Model model = parse_model("layers=2,hidden=64,heads=4,vocabulary=256,sequence=32,dropout=no");
  const std::vector<SecondOrderWork> whole = second_order_work(model, parse_layout("microbatch=2,dtype=f32"));
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(whole[2].product, OperationKind::up);
  EXPECT_EQ(cost_of(whole[2].input_curvature).flops, 2 * 64 * 64 * 64);
  EXPECT_EQ(cost_of(whole[2].output_curvature).flops, 2 * 64 * 256 * 256);
  EXPECT_EQ(cost_of(whole[2].output_inversion).flops, 256 * 256 * 256);
  EXPECT_EQ(cost_of(whole[2].precondition).flops, 2 * 64 * 256 * (64 + 256));
  const std::vector<SecondOrderWork> half = second_order_work(model, parse_layout("microbatch=2,dtype=f32,tp=2"));
  EXPECT_EQ(cost_of(half[2].input_curvature).flops, cost_of(whole[2].input_curvature).flops);
  EXPECT_EQ(4 * cost_of(half[2].output_curvature).flops, cost_of(whole[2].output_curvature).flops);
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

StageSlice layers(std::int64_t count) {
  StageSlice slice;
  slice.layers = count;
  return slice;
}

double kept(const Model& model, const std::string& layout, const StageSlice& slice) {
  return activations_of(model, parse_layout(layout), slice).kept;
}

// Korthikanti et al. 2022, table 2: s b h = 1 below, a s / h per layer.
TEST(Activations, OfALayerAreTable2) {
  for (const char* name : {"megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"}) {
    const Model m = parse_model(name);
    const double sbh = static_cast<double>(m.sequence) * 4 * static_cast<double>(m.hidden);
    const double scores =
        5 * static_cast<double>(m.heads) * static_cast<double>(m.sequence) / static_cast<double>(m.hidden);
    const auto in_sbh = [&](const std::string& more) {
      return kept(m, "microbatch=4,flash=no," + more, layers(1)) / sbh;
    };
    EXPECT_DOUBLE_EQ(in_sbh("tp=1"), 34 + scores);
    EXPECT_DOUBLE_EQ(in_sbh("tp=8"), 10 + 24.0 / 8 + scores / 8);
    EXPECT_DOUBLE_EQ(in_sbh("tp=8,sp=yes"), (34 + scores) / 8);
    EXPECT_DOUBLE_EQ(in_sbh("tp=8,recompute=selective"), 10 + 24.0 / 8);
    EXPECT_DOUBLE_EQ(in_sbh("tp=8,sp=yes,recompute=selective"), 34.0 / 8);
    EXPECT_DOUBLE_EQ(in_sbh("tp=8,recompute=full"), 2);
  }
}

// The numbers that calculon's validation (calculon/llm/validation.py) stores for figures 1 and 7 of the same paper:
// output of the formulas, in GiB and in % of what is kept without recomputation. The first stage has the most: L
// layers' worth, and more where stages are interleaved.
double first_stage_bytes(const Model& model, const std::string& text) {
  const Layout layout = parse_layout(text);
  EXPECT_EQ(why_invalid(model, layout), "") << text;
  const schedules::Schedule schedule = schedules::make_schedule(layout.schedule, shape_of(layout));
  const StageSlice slice = layers(model.layers / schedule.stages_per_pipe);  // without embedding and head
  const std::vector<StageActivations> of_stage(static_cast<std::size_t>(schedule.num_stages()),
                                               activations_of(model, layout, slice));
  return peak_activations(schedule, 0, of_stage);
}

struct Figures {
  const char* model;
  const char* layout;
  double kept_gib;
  double best_gib;  // sequence parallel, selective recomputation
  double sequence;  // % of kept_gib
  double selective;
  double both;
};
// Full recomputation is 2 s b h a layer, at 2 / 26.3 and so on of the whole.
const std::vector<Figures> kFigures{
    {"megatron-22b", "tp=8,microbatch=4", 59.25, 9.5625, 66.84, 49.42, 16.18},
    {"megatron-175b", "tp=8,pp=8,batch=64,schedule=interleaved,chunks=3", 66.84375, 12.3515625, 62.04, 56.53, 18.49},
    {"megatron-530b", "tp=8,pp=35,batch=280,schedule=interleaved,chunks=3", 114.0234375, 23.076171875, 58.31, 62.04,
     20.27},
    {"megatron-1t", "tp=8,pp=64,batch=512", 131.25, 26.5625, 58.31, 62.04, 20.27},
};

TEST(Activations, OfTheFirstStageAreFigures1And7) {
  for (const Figures& row : kFigures) {
    const Model model = parse_model(row.model);
    const std::string layout = std::string(row.layout) + ",flash=no";
    const double kept = first_stage_bytes(model, layout);
    const double best = first_stage_bytes(model, layout + ",sp=yes,recompute=selective");
    EXPECT_DOUBLE_EQ(kept / kGiB, row.kept_gib) << row.model;
    EXPECT_DOUBLE_EQ(best / kGiB, row.best_gib) << row.model;
    EXPECT_NEAR(100 * first_stage_bytes(model, layout + ",sp=yes") / kept, row.sequence, 0.2) << row.model;
    EXPECT_NEAR(100 * first_stage_bytes(model, layout + ",recompute=selective") / kept, row.selective, 0.2);
    EXPECT_NEAR(100 * best / kept, row.both, 0.2) << row.model;
  }
}

// States of some layers alone: what the model has beyond the one without them.
MemoryBytes states_of_layers(const Model& model, const Layout& layout, std::int64_t count) {
  Model fewer = model;
  fewer.layers -= count;
  MemoryBytes bytes = memory_of(model, layout, schedule_of(layout)).front();
  const MemoryBytes rest = memory_of(fewer, layout, schedule_of(layout)).front();
  bytes.weights -= rest.weights;
  bytes.gradients -= rest.gradients;
  bytes.optimizer -= rest.optimizer;
  return bytes;
}

TEST(Parameters, OfFigure1Take18Bytes) {
  // 12 l h^2, as in the figure: matrices of the layers only.
  for (const auto& [name, ranks, gib] : {std::tuple<const char*, double, double>{"megatron-22b", 8, 45.5625},
                                         {"megatron-175b", 64, 45.5625},
                                         {"megatron-530b", 280, 31.640625},
                                         {"megatron-1t", 512, 32.958984375}}) {
    const Model m = parse_model(name);
    const double matrices = 12 * static_cast<double>(m.layers * m.hidden * m.hidden);
    EXPECT_DOUBLE_EQ(18 * matrices / ranks / kGiB, gib) << name;
  }
  const Model m = parse_model("megatron-22b");
  const MemoryBytes bytes = states_of_layers(m, parse_layout("tp=8"), m.layers - 1);
  const auto h = static_cast<double>(m.hidden);
  // Norms and what is added after a sum, 6 h, are whole on every rank; the other biases, 7 h, are cut.
  EXPECT_DOUBLE_EQ(bytes.weights + bytes.gradients + bytes.optimizer,
                   18 * static_cast<double>(m.layers - 1) * (12 * h * h / 8 + 6 * h + 7 * h / 8));
}

// Separate weight gradients keep 32 s b h a layer (zero-bubble paper, arXiv:2401.10241, section 3.2).
TEST(Activations, ThatWeightGradientsNeedAre32) {
  const Model m = parse_model("megatron-22b");
  const double sbh = static_cast<double>(m.sequence * m.hidden);
  EXPECT_DOUBLE_EQ(activations_of(m, parse_layout("tp=1,flash=no"), layers(1)).later, 32 * sbh);
}

TEST(Activations, OfTheHeadAreThePapers) {
  const Model m = parse_model("megatron-22b");
  const auto sbh = static_cast<double>(m.sequence * m.hidden);
  StageSlice head;
  head.head = true;
  const double ratio = static_cast<double>(m.vocabulary) / static_cast<double>(m.hidden);
  EXPECT_DOUBLE_EQ(kept(m, "tp=8,sp=yes", head), 4 * sbh / 8 * (1 + ratio));
}

// Rajbhandari et al. 2019, figure 1: 7.5 billion parameters, 64 ranks, 12 bytes of optimizer states; in 1e9 bytes.
TEST(Zero, IsItsFigure1) {
  const Model m = parse_model("hidden=4096,layers=37,heads=32,vocabulary=1000,sequence=1024");
  const double psi = static_cast<double>(parameters_of_layer(m) * (m.layers - 1));
  for (const auto& [stage, bytes] :
       {std::pair<const char*, double>{"0", 16}, {"1", 4 + 12.0 / 64}, {"2", 2 + 14.0 / 64}, {"3", 16.0 / 64}}) {
    const Layout layout = parse_layout(std::string("dp=64,grad_dtype=bf16,zero=") + stage);
    const MemoryBytes found = states_of_layers(m, layout, m.layers - 1);
    EXPECT_NEAR((found.weights + found.gradients + found.optimizer) / psi, bytes, 1e-9) << stage;
  }
  const Layout hybrid = parse_layout("dp=64,grad_dtype=bf16,zero=3,shard_ranks=8");
  const MemoryBytes found = states_of_layers(m, hybrid, m.layers - 1);
  EXPECT_NEAR((found.weights + found.gradients + found.optimizer) / psi, 2, 1e-9) << "shards over 8";
}

TEST(Zero, SpreadsExpertsOverTheRanksThatHaveThem) {
  const Model m = parse_model("mixtral-8x7b,sequence=2048");
  const MemoryBytes bytes = states_of_layers(m, parse_layout("dp=16,ep=8,zero=1"), 1);
  const auto expert = static_cast<double>(layer_parameters(m).mlp);
  const auto dense = static_cast<double>(parameters_of_layer(m)) - 8 * expert;
  EXPECT_NEAR(bytes.optimizer, 12 * (dense / 16 + expert / 2), 1);
  EXPECT_NEAR(bytes.weights, 2 * (dense + expert), 1);
}

TEST(Memory, IsMostOnTheFirstStageAndLeastWithoutActivations) {
  const Model m = parse_model("megatron-175b");
  const Layout layout = parse_layout("tp=8,pp=8,batch=64,sp=yes,recompute=selective");
  const auto ranks = memory_of(m, layout, schedules::make_schedule("1f1b", shape_of(layout)));
  ASSERT_EQ(ranks.size(), 8u);
  EXPECT_EQ(worst_of(ranks), 0u);
  for (std::size_t r = 1; r < 7; ++r) EXPECT_LT(ranks[r].activations, ranks[r - 1].activations) << r;
  EXPECT_GT(ranks[7].weights, ranks[6].weights) << "the head's copy of the embedding";
}

TEST(Memory, OfTwoPipesHasBothStages) {
  const Model m = parse_model("megatron-175b");
  const Layout layout = parse_layout("tp=8,pp=8,batch=32");
  const Layout two = parse_layout("tp=8,pp=8,batch=32,schedule=dualpipe");
  const auto single = memory_of(m, layout, schedules::make_schedule("1f1b", shape_of(layout)));
  const auto twice = memory_of(m, two, schedules::make_schedule("dualpipe", shape_of(two)));
  EXPECT_DOUBLE_EQ(twice[3].weights, single[3].weights + single[4].weights);
  EXPECT_DOUBLE_EQ(twice[0].weights, single[0].weights + single[7].weights);
}

TEST(Memory, CountsVersionsOfWeights) {
  const Model m = parse_model("megatron-175b");
  const Layout flushed = parse_layout("tp=8,pp=8,batch=32");
  const Layout stale = parse_layout("tp=8,pp=8,batch=32,schedule=pipedream");
  const auto one = memory_of(m, flushed, schedules::make_schedule("1f1b", shape_of(flushed)));
  const auto many = memory_of(m, stale, schedules::make_schedule("pipedream", shape_of(stale)));
  EXPECT_DOUBLE_EQ(many[0].weights, 8 * one[0].weights);
  EXPECT_DOUBLE_EQ(many[7].weights, one[7].weights);
}

TEST(Memory, OfRecomputationIsOneLayerAtATime) {
  const Model m = parse_model("megatron-22b");
  const Layout none = parse_layout("tp=8,microbatch=4,flash=no");
  const Layout every = parse_layout("tp=8,microbatch=4,flash=no,recompute=full");
  const Layout fourth = parse_layout("tp=8,microbatch=4,flash=no,recompute=full,recompute_every=4");
  const double layer = activations_of(m, none, layers(1)).kept;
  const auto buffers = [&](const Layout& layout) { return memory_of(m, layout, schedule_of(layout)).front().buffers; };
  EXPECT_DOUBLE_EQ(buffers(every) - buffers(none), layer);
  EXPECT_DOUBLE_EQ(buffers(fourth) - buffers(none), 4 * layer);
  EXPECT_DOUBLE_EQ(activations_of(m, fourth, layers(48)).kept, activations_of(m, every, layers(48)).kept / 4);
}

// Table 1 of the ZeRO paper (arXiv:1910.02054): gigabytes of model states a device, 54 cells. A cell equals ours to
// every digit that it prints; the paper rounds some and cuts others (4,187.5 is 4187 there).
TEST(Memory, OfStagesIsTableOneOfThePaper) {
  struct Cells {
    double parameters;
    std::int32_t ranks;
    std::array<std::string, 3> printed;  // stages 1, 2 and 3
  };
  const std::vector<Cells> table{{7.5e09, 1, {{"120", "120", "120"}}},      {1.28e11, 1, {{"2048", "2048", "2048"}}},
                                 {1e12, 1, {{"16000", "16000", "16000"}}},  {7.5e09, 4, {{"52.5", "41.3", "30"}}},
                                 {1.28e11, 4, {{"896", "704", "512"}}},     {1e12, 4, {{"7000", "5500", "4000"}}},
                                 {7.5e09, 16, {{"35.6", "21.6", "7.5"}}},   {1.28e11, 16, {{"608", "368", "128"}}},
                                 {1e12, 16, {{"4750", "2875", "1000"}}},    {7.5e09, 64, {{"31.4", "16.6", "1.88"}}},
                                 {1.28e11, 64, {{"536", "284", "32"}}},     {1e12, 64, {{"4187", "2218", "250"}}},
                                 {7.5e09, 256, {{"30.4", "15.4", "0.47"}}}, {1.28e11, 256, {{"518", "263", "8"}}},
                                 {1e12, 256, {{"4046", "2054", "62.5"}}},   {7.5e09, 1024, {{"30.1", "15.1", "0.12"}}},
                                 {1.28e11, 1024, {{"513", "257", "2"}}},    {1e12, 1024, {{"4011", "2013", "15.6"}}}};
  for (const Cells& cells : table) {
    for (std::int32_t stage = 1; stage <= 3; ++stage) {
      Layout layout{.dp = cells.ranks, .zero = stage, .gradient = core::DType::bf16};
      const std::string& printed = cells.printed.at(static_cast<std::size_t>(stage) - 1);
      const std::size_t dot = printed.find('.');
      const double digit =
          dot == std::string::npos ? 1 : std::pow(10.0, -static_cast<double>(printed.size() - dot - 1));
      const double gigabytes = states_of(layout, cells.parameters, cells.parameters / cells.ranks).total() / 1e9;
      EXPECT_LT(std::abs(gigabytes - std::stod(printed)), digit)
          << cells.parameters << " " << cells.ranks << " " << stage;
    }
  }
}

// Their states, the kernel that a step has, and the text; the bytes that the kernel moves: g + 8, and 8 for each state.
TEST(Memory, AndUpdatesOfEachOptimizer) {
  const std::map<std::string, int> states{{"sgd", 0}, {"momentum", 1}, {"rmsprop", 1}, {"adam", 2}, {"adamw", 2}};
  for (const auto& [name, count] : states) {
    for (const std::string dtype : {"f32", "bf16"}) {
      const Layout layout = parse_layout("dp=4,zero=1,dtype=" + dtype + ",optimizer=" + name);
      EXPECT_EQ(parse_layout(text_of(layout)).optimizer, layout.optimizer) << name;
      EXPECT_EQ(text_of(layout).find("optimizer=" + name) == std::string::npos, name == "adamw") << text_of(layout);
      EXPECT_EQ(states_of(layout, 4000, 1000).optimizer, 1000 * (4 * count + (dtype == "f32" ? 0 : 4))) << name;
      const KernelCall update = optimizer_calls(layout, 1000).back();
      const auto& step = std::get<kernels::OptimizerStep>(update.arguments);
      EXPECT_EQ(step.name(), name);
      EXPECT_EQ(cost_of(step).bytes, 1000 * (12 + 8 * count + (dtype == "f32" ? 0 : 2)) + 4) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::workload
