#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/prices/prices.h"
#include "workload/build_step.h"
#include "workload/memory.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Op;
using schedules::Piece;

// 1 TFLOP/s for products, with free memory accesses and launches.
DeviceSpec products_only() {
  DeviceSpec device;
  device.matrix_tflops = 1;
  device.vector_tflops = 1e9;
  device.memory_gbps = 1e15;
  return device;
}

// Priced on a device, kernels in a row as one piece.
workload::StageWork work_of(const workload::Model& model, const workload::Layout& layout, const DeviceSpec& device,
                            const workload::StageSlice& slice) {
  const workload::Pricing pricing{
      .kernel = [&device](const workload::KernelCall& call) { return kernel_ps(device, call); },
      .simplify = merge_kernels};
  return workload::work_of(model, layout, slice, pricing);
}

std::int64_t kernels_ps(const std::vector<Piece>& pieces, Op op) {
  std::int64_t ps = 0;
  for (const Piece& piece : pieces) ps += piece.op == op ? piece.amount : 0;
  return ps;
}
double collective_bytes(const std::vector<Piece>& pieces, Comm comm) {
  double bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.op == Op::layer_collective && piece.comm == comm) bytes += static_cast<double>(piece.amount);
  }
  return bytes;
}

workload::StageSlice slice(std::int64_t layers, bool embedding, bool head) {
  workload::StageSlice slice;
  slice.layers = layers;
  slice.embedding = embedding;
  slice.head = head;
  return slice;
}

// A FLOP takes a picosecond here, so whole models take the FLOPs that Narayanan et al. 2021 count.
TEST(Recipes, OfAModelTakeItsFlops) {
  const workload::Model m = workload::parse_model("megatron-1.7b");
  const auto s = static_cast<double>(m.sequence);
  const workload::Layout kept = workload::parse_layout("flash=no");
  const workload::Layout again = workload::parse_layout("flash=no,recompute=full");
  const workload::StageSlice whole = slice(m.layers, true, true);
  const auto step_ps = [&](const workload::Layout& layout) {
    const workload::StageWork work = work_of(m, layout, products_only(), whole);
    return static_cast<double>(kernels_ps(work.recipe.forward, Op::forward) +
                               kernels_ps(work.recipe.backward, Op::backward) +
                               kernels_ps(work.recipe.backward, Op::recompute));
  };
  EXPECT_NEAR(step_ps(kept) / training_flops(m, s, false), 1, 1e-6);
  EXPECT_NEAR(step_ps(again) / training_flops(m, s, true), 1, 1e-6);
}

// Korthikanti et al. 2022, section 6.1 and appendix: selective recomputation adds the core's forward.
TEST(Recipes, WithSelectiveRecomputationDoTheCoreAgain) {
  const workload::Model m = workload::parse_model("megatron-175b");
  const workload::Layout layout = workload::parse_layout("tp=8,flash=no,recompute=selective");
  const workload::StageWork work = work_of(m, layout, products_only(), slice(1, false, false));
  const double core = token_flops(m).attention / static_cast<double>(m.layers) * static_cast<double>(m.sequence) / 8;
  EXPECT_NEAR(static_cast<double>(kernels_ps(work.recipe.backward, Op::recompute)) / core, 1, 1e-6);
  // Flash attention keeps its output and one number per row, which are recomputed: half of the scores are masked.
  const workload::StageWork flash =
      work_of(m, workload::parse_layout("tp=8,recompute=selective"), products_only(), slice(1, false, false));
  EXPECT_NEAR(static_cast<double>(kernels_ps(flash.recipe.backward, Op::recompute)) / core, 0.5, 0.02);
}

TEST(Recipes, SplitABackwardIntoBothGradients) {
  const workload::Model m = workload::parse_model("megatron-22b");
  const DeviceSpec device = load_machine("dgx-a100").device;
  for (const char* text : {"tp=1", "tp=8", "tp=8,sp=yes", "tp=8,sp=yes,flash=no,recompute=selective",
                           "tp=8,recompute=full", "tp=8,overlap_tp=no"}) {
    const workload::StageWork work = work_of(m, workload::parse_layout(text), device, slice(3, true, true));
    const auto& r = work.recipe;
    EXPECT_EQ(kernels_ps(r.backward, Op::backward),
              kernels_ps(r.input_gradient, Op::input_gradient) + kernels_ps(r.weight_gradient, Op::weight_gradient))
        << text;
    EXPECT_EQ(kernels_ps(r.backward, Op::recompute), kernels_ps(r.input_gradient, Op::recompute)) << text;
    for (const Comm comm : {Comm::all_reduce, Comm::all_gather, Comm::reduce_scatter}) {
      EXPECT_EQ(collective_bytes(r.backward, comm),
                collective_bytes(r.input_gradient, comm) + collective_bytes(r.weight_gradient, comm))
          << text;
    }
  }
}

// Six all-reduces per layer with full recomputation, 12 b s h (t-1)/t bytes per rank on the wire.
TEST(Recipes, ExchangeAgainWhatTheyRecompute) {
  const workload::Model m = workload::parse_model("megatron-22b");
  const double bsh = 2 * static_cast<double>(m.sequence * m.hidden);
  const DeviceSpec device = products_only();
  const workload::StageWork kept = work_of(m, workload::parse_layout("tp=8"), device, slice(1, false, false));
  const workload::StageWork again =
      work_of(m, workload::parse_layout("tp=8,recompute=full"), device, slice(1, false, false));
  EXPECT_EQ(collective_bytes(kept.recipe.forward, Comm::all_reduce), 2 * bsh);
  EXPECT_EQ(collective_bytes(kept.recipe.backward, Comm::all_reduce), 2 * bsh);
  EXPECT_EQ(collective_bytes(again.recipe.backward, Comm::all_reduce), 4 * bsh);
}

TEST(Recipes, ReduceInputGradientsDuringWeightGradients) {
  const workload::Model m = workload::parse_model("megatron-22b");
  const DeviceSpec device = load_machine("dgx-a100").device;
  const auto overlaps = [&](const char* layout) {
    int count = 0;
    const auto& pieces = work_of(m, workload::parse_layout(layout), device, slice(1, false, false)).recipe.backward;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].overlaps_next) continue;
      ++count;
      EXPECT_EQ(pieces.at(i + 1).op, Op::backward);
    }
    return count;
  };
  EXPECT_EQ(overlaps("tp=8"), 2);
  EXPECT_EQ(overlaps("tp=8,overlap_tp=no"), 0);
  EXPECT_EQ(overlaps("tp=8,sp=yes"), 4) << "and two gathers of kept inputs";
}

TEST(Recipes, NumberTheirParts) {
  const workload::Model m = workload::parse_model("gpt2-124m");
  const workload::StageWork work = work_of(m, workload::parse_layout("tp=1,recompute=full,recompute_every=2"),
                                           load_machine("dgx-a100").device, slice(3, true, true));
  EXPECT_EQ(work.recipe.forward.front().part, 0);
  EXPECT_EQ(work.recipe.forward.back().part, 4);
  std::vector<std::pair<Op, std::int32_t>> order;
  for (const Piece& piece : work.recipe.backward) {
    const std::pair<Op, std::int32_t> at{piece.op, piece.part};
    if (order.empty() || order.back() != at) order.push_back(at);
  }
  using P = std::pair<Op, std::int32_t>;
  EXPECT_EQ(order, (std::vector<P>{P{Op::backward, 4}, P{Op::recompute, 3}, P{Op::backward, 3}, P{Op::recompute, 1},
                                   P{Op::recompute, 2}, P{Op::backward, 2}, P{Op::backward, 1}, P{Op::backward, 0}}));
}

TEST(Recipes, SendWhatLiesBetweenStages) {
  const workload::Model m = workload::parse_model("megatron-175b");
  const auto bsh = 2 * m.sequence * m.hidden;
  const auto message = [&](const char* layout) {
    return work_of(m, workload::parse_layout(layout), products_only(), slice(1, false, false)).message_bytes;
  };
  EXPECT_EQ(message("tp=8"), bsh);
  EXPECT_EQ(message("tp=8,scatter_gather=yes"), bsh / 8);
  EXPECT_EQ(message("tp=8,sp=yes"), bsh / 8);
  EXPECT_EQ(message("tp=8,sp=yes,scatter_gather=yes"), bsh / 8);
  EXPECT_EQ(message("tp=8,cp=2,microbatch=4"), 2 * bsh);
}

TEST(Totals, AddKernelsAndWhatTheyWaitFor) {
  const Piece kernel{Op::backward, 0, 100};
  Piece overlapped{Op::layer_collective, 0, 8, Comm::all_reduce, GroupKind::tensor, true};
  const Piece waited{Op::layer_collective, 0, 8, Comm::all_reduce, GroupKind::tensor, false};
  workload::StageWork work;
  work.recipe.backward = {kernel, overlapped, kernel, waited, kernel};
  work.recipe.input_gradient = {kernel, waited};
  const auto cost = [&](std::int64_t ps) {
    return totals_of(work, [ps](Comm, GroupKind, std::int64_t) { return PricedCollective{ps}; });
  };
  EXPECT_EQ(cost(30).input_gradient_ps, 130);
  EXPECT_EQ(cost(30).weight_gradient_ps, 330 - 130) << "hidden by a kernel";
  EXPECT_EQ(cost(150).weight_gradient_ps, 100 + 150 + 150 + 100 - 250) << "longer than the kernel";
}

TEST(KernelPrice, IsTheRoofline) {
  DeviceSpec device;
  device.matrix_tflops = 2;
  device.vector_tflops = 1;
  device.memory_gbps = 10;
  device.launch_us = 3;
  device.product = {{1e6, 0.5}};
  device.memory = {{1e3, 0.5}};
  using workload::KernelClass;
  const auto ps = [&](KernelClass of, core::DType dtype, double flops, double bytes) {
    return kernel_ps(device, {workload::OtherKernel{of, dtype, flops, bytes}});
  };
  EXPECT_EQ(ps(KernelClass::product, core::DType::bf16, 1e9, 0), 1'000'000'000 + 3'000'000);
  EXPECT_EQ(ps(KernelClass::product, core::DType::f32, 1e9, 0), 2'000'000'000 + 3'000'000) << "no TF32";
  EXPECT_EQ(ps(KernelClass::pass, core::DType::bf16, 0, 1e6), 200'000'000 + 3'000'000);
  EXPECT_EQ(ps(KernelClass::product, core::DType::bf16, 1e6, 1e6), 200'000'000 + 3'000'000);
}

// 100 multiprocessors that each do a full tile's step along k in one nanosecond.
double us_of(double m, double n, double k) {
  DeviceSpec device;
  device.multiprocessors = 100;
  const double tflops = 100 * 2 * 256.0 * 128.0 / 1e3;
  return product_us(device, {m, n, k}, tflops);
}

TEST(ProductTime, IsThatOfItsWaves) {
  constexpr double kK = 10000;
  EXPECT_NEAR(us_of(256 * 10, 128 * 10, kK), 1 + 10, 1e-9) << "a wave of 100 tiles";
  EXPECT_NEAR(us_of(256 * 20, 128 * 10, kK), 2 * (1 + 10), 1e-9);
  EXPECT_GT(us_of(256 * 10 + 1, 128 * 10, kK), 1.2 * us_of(256 * 10, 128 * 10, kK)) << "tiles at the edge";
  EXPECT_LT(us_of(256 * 10 + 1, 128 * 10, kK), us_of(256 * 20, 128 * 10, kK)) << "of smaller tiles more fit";
  EXPECT_EQ(us_of(1280, 2560, kK), us_of(2560, 1280, kK));
}

TEST(ProductTime, OfFewTilesIsThatOfSmallerOnesAndOfPartsAlongK) {
  const double one_tile = us_of(256, 128, 8192);
  EXPECT_LT(one_tile, 1 + 8.192) << "of one multiprocessor";
  EXPECT_GT(one_tile, 1 + 8.192 / 64) << "parts have 512 steps, and small tiles load more";
  EXPECT_GT(us_of(64, 64, 512), 1 + 0.512 / 8) << "too short for parts";
  EXPECT_NEAR(us_of(64, 64, 512), us_of(64, 64, 256), 0.512 / 4) << "most of it is the tile's start";
}

TEST(KernelPrice, TakesShapesWhereMultiprocessorsAreKnown) {
  DeviceSpec device = load_machine("dgx-a100").device;
  const auto longer = [&] {  // for 110 tiles than for 100
    const auto ps = [&](std::int64_t rows) {
      const kernels::GemmForward product{.shape = {.rows = rows, .inputs = 8192, .outputs = 1280}};
      return static_cast<double>(kernel_ps(device, workload::kernel_call(product, core::DType::bf16)));
    };
    return ps(256 * 11) / ps(256 * 10);
  };
  EXPECT_GT(longer(), 1.12) << "more than a wave of 108";
  device.multiprocessors = 0;
  EXPECT_LT(longer(), 1.1) << "FLOPs alone";
}

TEST(Groups, LieOnLevels) {
  Machine machine;
  machine.levels = {{.name = "nvlink", .ranks = 8}, {.name = "rail", .ranks = 32}, {.name = "spine", .ranks = 64}};
  const auto lies = [&](const workload::RankSet& ranks) {
    return members_per_level(machine, std::vector<workload::RankSet>{ranks});
  };
  using Members = std::vector<std::int64_t>;
  EXPECT_EQ(lies({0, 1, 8}), (Members{8, 8, 8})) << "tensor ranks of tp=8,dp=6,pp=64";
  EXPECT_EQ(lies({0, 8, 6}), (Members{1, 4, 6})) << "its data ranks";
  EXPECT_EQ(lies({0, 8 * 6, 64}), (Members{1, 1, 64})) << "its pipeline";
  EXPECT_EQ(lies({0, 1, 20}), (Members{8, 20, 20}));
  EXPECT_EQ(lies({0, 1, 3}), (Members{3, 3, 3}));
  EXPECT_EQ(lies({6, 1, 3}), (Members{2, 3, 3})) << "6 7 | 8";
}

// The same by counting every member.
TEST(Groups, LieOnLevelsAsEveryMemberSees) {
  Machine machine;
  machine.levels = {{.name = "node", .ranks = 8}, {.name = "leaf", .ranks = 48}, {.name = "spine", .ranks = 96}};
  for (std::int64_t first = 0; first < 10; ++first) {
    for (std::int64_t stride = 1; stride < 20; ++stride) {
      for (const std::int64_t count : {1, 2, 7, 40}) {
        const workload::RankSet set{first, stride, count};
        std::vector<std::int64_t> most;
        for (const std::int64_t ranks : {8, 48}) {
          std::map<std::int64_t, std::int64_t> on_switch;
          for (std::int64_t i = 0; i < count; ++i) ++on_switch[set.at(i) / ranks];
          std::int64_t largest = 0;
          for (const auto& [number, members] : on_switch) largest = std::max(largest, members);
          most.push_back(largest);
        }
        most.push_back(count);
        EXPECT_EQ(members_per_level(machine, std::vector<workload::RankSet>{set}), most)
            << first << " + " << stride << " x " << count;
      }
    }
  }
}

TEST(Optimizer, WorksOnItsShard) {
  const workload::Model m = workload::parse_model("megatron-1.7b");
  const DeviceSpec device = load_machine("dgx-a100").device;
  const workload::StageSlice whole = slice(m.layers, true, true);
  const workload::StageWork all = work_of(m, workload::parse_layout("dp=32"), device, whole);
  const workload::StageWork part = work_of(m, workload::parse_layout("dp=32,zero=1"), device, whole);
  EXPECT_GT(all.optimizer_ps, 0);
  EXPECT_LT(part.optimizer_ps, all.optimizer_ps / 16);
}

PricedCollective a_ps_a_byte(Comm, GroupKind, std::int64_t bytes) {
  return {bytes};
}

Piece kernel(std::int64_t ps, std::int32_t part = 0) {
  return {.op = Op::forward, .part = part, .amount = ps};
}
Piece collective(std::int64_t bytes, bool overlapped = false) {
  return {
      .op = Op::layer_collective, .part = 0, .amount = bytes, .comm = Comm::all_reduce, .overlaps_next = overlapped};
}

std::vector<std::int64_t> folded(std::vector<Piece> forward) {
  std::vector<std::int64_t> amounts;
  for (const Piece& piece : fold_pieces({std::move(forward), {}, {}, {}}, a_ps_a_byte).forward) {
    EXPECT_EQ(piece.comm, Comm::none);
    amounts.push_back(piece.amount);
  }
  return amounts;
}

using Amounts = std::vector<std::int64_t>;

TEST(FoldPieces, ACollectiveBecomesTimeOfTheKernelBeforeIt) {
  EXPECT_EQ(folded({kernel(10), collective(3), kernel(5), collective(2)}), Amounts{20});
  EXPECT_EQ(folded({kernel(10), collective(3), kernel(5, 1)}), (Amounts{13, 5}));
}

TEST(FoldPieces, ACollectiveDuringAKernelCountsWhereItIsLonger) {
  EXPECT_EQ(folded({kernel(10), collective(4, true), kernel(7)}), Amounts{17});
  EXPECT_EQ(folded({kernel(10), collective(9, true), kernel(7)}), Amounts{19});
  EXPECT_EQ(folded({kernel(10), collective(9, true)}), Amounts{19});
}

TEST(FoldPieces, ACollectiveTakesItsPartOfTheKernelDuringIt) {
  EXPECT_EQ(together_ps(100, 0, 0.2), 100);
  EXPECT_EQ(together_ps(100, 50, 0.2), 110) << "50 at 0.8 of the rate";
  EXPECT_EQ(together_ps(80, 100, 0.2), 100) << "ends with it";
  EXPECT_EQ(together_ps(20, 100, 0.2), 100);
  EXPECT_EQ(together_ps(100, 300, 0), 300);
  const schedules::StageRecipe recipe{{collective(50, true), kernel(100)}, {}, {}, {}};
  const auto priced = [&](double taken) {
    const auto price = [taken](Comm, GroupKind, std::int64_t bytes) { return PricedCollective{bytes, taken}; };
    const workload::StageWork work{.recipe = recipe};
    EXPECT_EQ(totals_of(work, price).forward_ps, fold_pieces(recipe, price).forward.front().amount);
    return fold_pieces(recipe, price).forward.front().amount;
  };
  EXPECT_EQ(priced(0.2), 110);
  EXPECT_EQ(priced(0), 100) << "copy engines leave the kernel its rate";
}

TEST(FoldPieces, ACollectiveInFrontCountsForTheFirstKernel) {
  EXPECT_EQ(folded({collective(4), kernel(7), kernel(1, 1)}), (Amounts{11, 1}));
}

}  // namespace
}  // namespace lockstep::simulator
