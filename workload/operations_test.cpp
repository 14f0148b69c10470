#include "workload/operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "workload/second_order.h"

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

// Four all-reduces of b s h a layer; or four all-gathers and four reduce-scatters, and two gathers more beside the
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
// most. What crosses between nodes is a row for each of them, and not a copy for each expert.
TEST(Operations, NodeLimitedRoutingSendsATokenOnceToANode) {
  const std::string shape =
      "hidden=7168,layers=1,heads=128,head_size=56,ffn_hidden=2048,experts=256,experts_a_token=8,sequence=4096";
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
  EXPECT_NEAR(rows_over(",expert_groups=8,groups_a_token=4", GroupKind::expert_groups), reached(4, 128, 8), 1e-9);
  EXPECT_NEAR(rows_over(",expert_groups=8,groups_a_token=4", GroupKind::expert_group), reached(32, 128, 8), 1e-9);
  EXPECT_LT(rows_over(",expert_groups=8,groups_a_token=4", GroupKind::expert_groups), 4);
  EXPECT_EQ(rows_over(",expert_groups=8,groups_a_token=4", GroupKind::expert), 0);
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

}  // namespace
}  // namespace lockstep::workload
