#include "simulator/predict/predict.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/traces.h"
#include "testing/core/thrown.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/parameters.h"

namespace lockstep::simulator {
namespace {

const schedules::ChakraPrices kNoPrices{[](double, double) { return std::int64_t{0}; },
                                        [](double, bool) { return std::int64_t{0}; }};

workload::Model small_model() {
  return workload::parse_model("gpt3-1.3b");
}

// Layouts that together cover every pass and every kind of group.
const std::vector<std::string>& small_layouts() {
  static const std::vector<std::string> kLayouts = {"tp=2,pp=2,dp=2,batch=16",
                                                    "tp=2,pp=4,dp=2,batch=32,sp=yes,recompute=selective",
                                                    "tp=1,pp=2,dp=4,batch=32,zero=1",
                                                    "tp=2,pp=2,dp=4,batch=32,zero=2,schedule=interleaved,chunks=2",
                                                    "tp=2,pp=1,dp=4,batch=16,zero=3,recompute=full",
                                                    "tp=1,pp=1,dp=8,batch=16,zero=3,shard_ranks=4",
                                                    "tp=2,pp=4,dp=2,batch=32,schedule=zb_h1",
                                                    "tp=2,cp=2,pp=2,dp=2,batch=16",
                                                    "tp=2,pp=4,dp=4,batch=32,zero=1,order=pp-cp-ep-dp-tp",
                                                    "tp=2,cp=2,pp=2,dp=2,batch=16,zero=1,order=ep-dp-tp-cp-pp",
                                                    "tp=1,dp=8,batch=16,zero=3,offload=optimizer:host+gradients:host+"
                                                    "parameters:host",
                                                    "tp=1,dp=8,batch=16,zero=2,offload=optimizer:host+gradients:host,"
                                                    "delayed_update=yes",
                                                    "tp_grid=2x2,pp=2,dp=2,microbatch=2,batch=16",
                                                    "tp_grid=2.5d:2x2x2,dp=2,microbatch=4,batch=16,zero=1",
                                                    "tp_grid=2x2x2,pp=2,microbatch=4,batch=16,schedule=zb_h1"};
  return kLayouts;
}

// Without host times and contention of collectives, merging and folding are exact.
Machine machine_without_limits() {
  Machine machine = load_machine("dgx-a100");
  machine.host = {};
  machine.nccl->blocks = 0;
  return machine;
}

// A step that was written as a Chakra trace and read again takes as long, to the picosecond, and its ranks send as many
// bytes. Without context parallelism: its shifts become messages, which have another price than collectives.
TEST(Predict, StepsTakeAsLongWhenReadFromTheirChakraTraces) {
  const Machine machine = load_machine("dgx-a100");
  for (const std::string& text : small_layouts()) {
    if (text.find("cp=") != std::string::npos) continue;
    const workload::Layout layout = workload::parse_layout(text);
    const Prediction prediction =
        predict(small_model(), layout, machine, {.extent = Extent::all_ranks, .keep_timeline = true});
    const schedules::ChakraTrace written = schedules::to_chakra(prediction.step);
    schedules::ChakraTrace read{{}, written.groups};
    for (const auto& nodes : written.of_rank) {
      read.of_rank.push_back(schedules::parse_chakra_file(schedules::to_chakra_file(nodes), "t"));
    }
    const schedules::Step step = schedules::read_chakra(read, "t", kNoPrices).step;
    const Replay replayed = replay(step, machine);
    EXPECT_EQ(replayed.step_s, prediction.step_s) << text;
    EXPECT_EQ(replayed.busiest, prediction.busiest) << text;
    EXPECT_EQ(replayed.parts[prediction.busiest].bubble_ps, prediction.parts[prediction.busiest].bubble_ps) << text;
    const std::vector<schedules::SentBytes> sent = schedules::count_sent(step);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      EXPECT_EQ(sent[r].messages, prediction.sent[r].messages) << text;
      EXPECT_EQ(sent[r].of_groups, prediction.sent[r].of_groups) << text;
    }
  }
}

// Seeded changes of a trace's nodes, on one rank or on all: the replay ends with a time or with one refusal.
TEST(Predict, ReplaysChangedChakraTracesOrRefusesThem) {
  const Machine machine = load_machine("dgx-a100");
  const workload::Model model = workload::parse_model("hidden=64,layers=2,heads=2,vocabulary=128,sequence=32");
  const Prediction prediction = predict(model, workload::parse_layout("tp=2,pp=2,dp=2,batch=4"), machine,
                                        {.extent = Extent::all_ranks, .keep_timeline = true});
  const schedules::ChakraTrace good = schedules::to_chakra(prediction.step);
  constexpr unsigned kSeed = 7;
  std::mt19937 engine(kSeed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(engine()) % n; };
  const std::array<std::string, 6> texts{"compute", "send", "tensor", "reduce", "RECV_F", "STEP"};
  const std::array<const char*, 6> numbers{"comm_dst", "comm_src", "comm_size", "comm_type", "comm_tag", "issue_ps"};
  int replayed = 0;
  for (int n = 0; n < 400; ++n) {
    schedules::ChakraTrace trace = good;
    const std::size_t way = below(5);
    const std::size_t at = below(good.of_rank[0].size());
    const std::size_t other = below(good.of_rank[0].size());
    const std::size_t choice = below(6);
    const std::int64_t value = static_cast<std::int64_t>(below(12)) - 1;
    const std::size_t first = below(2) * below(good.of_rank.size());
    for (std::size_t r = first; r < (below(2) == 0 ? trace.of_rank.size() : first + 1); ++r) {
      if (at >= trace.of_rank[r].size()) continue;
      schedules::ChakraNode& node = trace.of_rank[r][at];
      if (way == 0) node.texts[choice < 4 ? "lane" : "op"] = texts[choice];
      if (way == 1) node.numbers[numbers[choice]] = value;
      if (way == 2) node.dependencies.clear();
      if (way == 3) node.dependencies.push_back(good.of_rank[0][other].id);
      if (way == 4) node.type = static_cast<schedules::ChakraType>(choice + 2);
    }
    try {
      const schedules::Step step = schedules::read_chakra(trace, "t", kNoPrices).step;
      EXPECT_GE(replay(step, machine).step_s, 0);
      ++replayed;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.failure(), core::Failure::usage) << n << ": " << error.what();
    }
  }
  EXPECT_GT(replayed, 100);
}

// One representative rank per pipeline stage gives the same result as all ranks.
TEST(Predict, OnePipelineTakesAsLongAsAllRanks) {
  const Machine machine = load_machine("dgx-a100");
  for (const std::string& text : small_layouts()) {
    const workload::Layout layout = workload::parse_layout(text);
    const Prediction prediction = predict(small_model(), layout, machine);
    const Prediction all = predict(small_model(), layout, machine, {.extent = Extent::all_ranks});
    EXPECT_EQ(prediction.step_s, all.step_s) << text;
    EXPECT_GE(all.events, prediction.events * layout.ranks() / layout.pp - 1) << text;
    ASSERT_EQ(static_cast<std::int64_t>(all.parts.size()), layout.ranks());
    for (std::int64_t r = 0; r < layout.ranks(); ++r) {
      const auto& whole = all.parts[static_cast<std::size_t>(r)];
      const auto& folded = prediction.parts[static_cast<std::size_t>(coordinates_of(layout, r).pp)];
      ASSERT_EQ(whole.bubble_ps, folded.bubble_ps) << text << " rank " << r;
      ASSERT_EQ(whole.exposed_ps, folded.exposed_ps) << text << " rank " << r;
    }
  }
}

// Tensor-parallel ranks across nodes cost more than data-parallel ranks inside a node gain.
TEST(Predict, OrderOfRanksDecidesWhichBytesCrossNodes) {
  const Machine machine = load_machine("dgx-a100");
  const auto step_s = [&](const std::string& order) {
    return predict(small_model(), workload::parse_layout("tp=8,dp=8,batch=64,order=" + order), machine).step_s;
  };
  EXPECT_EQ(step_s("tp-cp-dp-pp"),
            predict(small_model(), workload::parse_layout("tp=8,dp=8,batch=64"), machine).step_s);
  EXPECT_GT(step_s("dp-cp-tp-pp"), 1.5 * step_s("tp-cp-dp-pp"));
}

// A machine with the given cores and a measured time for every kernel of the layouts: 1 us each, 1.5 us with a
// concurrent copy.
Machine shared_machine(const workload::Model& model, const std::vector<std::string>& layouts, std::int32_t cores) {
  Machine machine = load_machine("dgx-a100");
  machine.measured.cores = cores;
  for (const std::string& text : layouts) {
    const workload::Layout layout = workload::parse_layout(text);
    works_of(model, layout, schedule_of(layout), {.kernel = [&](const workload::KernelCall& call) -> std::int64_t {
               machine.measured.kernels[workload::signature_of(call)] = {{1, 1}, {2, 1.5}};
               return 0;
             }});
  }
  for (const char* name : {"all_reduce", "send_recv"}) machine.measured.collectives.push_back({name, 2, {{1e9, 1e-6}}});
  return machine;
}

// Operands of both have as many bytes, and the longer sequence has twice the FLOPs.
TEST(Predict, AttentionOverLongerSequencesIsAnotherKernel) {
  const auto signature = [](std::int64_t batch, std::int64_t length) {
    const kernels::AttentionShape shape{
        .batch = batch, .heads = 2, .queries = length, .keys = length, .head_columns = 16, .qkv_stride = 96};
    return workload::signature_of(workload::kernel_call(kernels::AttentionForward{.shape = shape}, core::DType::f32));
  };
  EXPECT_NE(signature(8, 128), signature(4, 256));
  EXPECT_EQ(signature(8, 128), signature(8, 128));
}

// One rank takes a time, two on cores of their own 1.5 times as long for the same work each, two on one core twice that
// of one, four on two cores twice that of two.
TEST(Predict, RanksShareTheCoresOfOneHost) {
  const workload::Model model = workload::parse_model("nano,sequence=32");
  const std::vector<std::string> layouts = {"dp=1,batch=1", "dp=2,batch=2", "dp=4,batch=4"};
  const auto step_us = [&](const std::string& text, std::int32_t cores) {
    Machine machine = shared_machine(model, layouts, cores);
    machine.measured.collectives.push_back({"all_reduce", 4, {{1e9, 1e-6}}});
    const Prediction prediction = predict(model, workload::parse_layout(text), machine);
    EXPECT_EQ(static_cast<std::int32_t>(prediction.parts.size()), workload::parse_layout(text).ranks()) << "every rank";
    return prediction.step_s * 1e6;
  };
  const double alone_us = step_us("dp=1,batch=1", 2);
  EXPECT_GT(alone_us, 20);
  EXPECT_NEAR(alone_us, std::round(alone_us), 1e-6) << "a microsecond per kernel";
  EXPECT_NEAR(step_us("dp=2,batch=2", 2), 1.5 * alone_us, 0.01 * alone_us);
  EXPECT_NEAR(step_us("dp=2,batch=2", 1), 2 * alone_us, 0.01 * alone_us);
  EXPECT_NEAR(step_us("dp=4,batch=4", 2), 3 * alone_us, 0.02 * alone_us);
  EXPECT_THROW(predict(model, workload::parse_layout("dp=2,batch=2"), shared_machine(model, layouts, 2),
                       {.extent = Extent::all_ranks, .collectives = Collectives::plans}),
               core::Error);
}

// Without other messages and with equal ports, messages on links take as long as the formulas, up to what the ring
// formula neglects for small tensor groups.
TEST(Predict, CollectivesAsPlansTakeAsLongAsByFormula) {
  Machine machine = load_machine("dgx-a100");
  machine.nccl.reset();
  machine.host = {};
  for (NetworkLevel& level : machine.levels) level.efficiency = level.collective_efficiency = 1;
  for (const std::string text : {"tp=2,pp=2,dp=2,batch=16", "tp=1,pp=1,dp=8,batch=16,zero=3",
                                 "tp=4,pp=2,dp=1,batch=8,sp=yes", "tp_grid=2x2,pp=2,microbatch=2,batch=8"}) {
    const workload::Layout layout = workload::parse_layout(text);
    const Prediction formulas = predict(small_model(), layout, machine, {.extent = Extent::all_ranks});
    const Prediction plans =
        predict(small_model(), layout, machine, {.extent = Extent::all_ranks, .collectives = Collectives::plans});
    EXPECT_NEAR(plans.step_s, formulas.step_s, 0.01 * formulas.step_s) << text;
    EXPECT_GT(plans.events, formulas.events) << text;
  }
}

TEST(Predict, PartsOfARankAreTheStep) {
  const Machine machine = load_machine("dgx-a100");
  for (const std::string& text : small_layouts()) {
    const Prediction prediction = predict(small_model(), workload::parse_layout(text), machine);
    for (const auto& rank : prediction.parts) {
      const std::int64_t sum = rank.compute_ps() + rank.all_exposed_ps() + rank.bubble_ps;
      EXPECT_NEAR(static_cast<double>(sum) / 1e12, prediction.step_s, 1e-12) << text;
    }
  }
}

// The tasks equal those of a trainer's step, one by one, on any machine.
TEST(Predict, KernelsOfTheirOwnTakeAsLongAsMerged) {
  const Machine machine = machine_without_limits();
  for (const std::string& text : small_layouts()) {
    const workload::Layout layout = workload::parse_layout(text);
    const Prediction kernels =
        predict(small_model(), layout, machine, {.detail = Detail::kernels, .keep_timeline = true});
    const Prediction pieces = predict(small_model(), layout, machine, {.keep_timeline = true});
    EXPECT_EQ(kernels.step_s, pieces.step_s) << text;
    EXPECT_GT(kernels.step.of_rank.front().tasks.size(), pieces.step.of_rank.front().tasks.size()) << text;
  }
}

// Without collectives that overlap other actions, one kernel per layer is exact.
TEST(Predict, FoldedPiecesTakeAsLong) {
  const Machine machine = machine_without_limits();
  for (const std::string& text : small_layouts()) {
    workload::Layout layout = workload::parse_layout(text);
    layout.overlap_tp = false;
    const double pieces = predict(small_model(), layout, machine).step_s;
    const double folded = predict(small_model(), layout, machine, {.detail = Detail::folded}).step_s;
    EXPECT_NEAR(folded, pieces, 1e-3 * pieces) << text;
  }
}

// With host times, the kernels of a task are issued evenly, and a folded layer issues its collectives one by one.
TEST(Predict, MergedAndFoldedStayCloseWithTheHost) {
  const Machine machine = load_machine("dgx-a100");
  for (const std::string& text : small_layouts()) {
    const workload::Layout layout = workload::parse_layout(text);
    const double pieces = predict(small_model(), layout, machine).step_s;
    const double kernels = predict(small_model(), layout, machine, {.detail = Detail::kernels}).step_s;
    const double folded = predict(small_model(), layout, machine, {.detail = Detail::folded}).step_s;
    EXPECT_NEAR(kernels, pieces, 0.02 * pieces) << text;
    EXPECT_NEAR(folded, pieces, 0.06 * pieces) << text;
  }
}

TEST(Predict, AHostThatCannotKeepUpSetsThePace) {
  Machine machine = load_machine("dgx-a100");
  const auto step = [&](const std::string& text) {
    return predict(small_model(), workload::parse_layout(text), machine).step_s;
  };
  const double eager = step("tp=8");
  machine.host.operator_us *= 10;
  const double slow = step("tp=8");
  machine.host.operator_us *= 2;
  EXPECT_GT(slow, 2 * eager);
  EXPECT_NEAR(step("tp=8"), 2 * slow, 0.02 * slow);
  EXPECT_LT(step("tp=8,graphs=yes"), eager);
}

// ZeRO 3 within a node: its gathers run on copy engines, its reductions do not.
TEST(Predict, WhatCopyEnginesMoveLeavesKernelsTheirMultiprocessors) {
  Machine machine = load_machine("dgx-h100");
  const auto predicted = [&](const std::string& text) {
    return predict(small_model(), workload::parse_layout(text), machine, {.compare_zero_cta = true});
  };
  const std::string layout = "dp=8,zero=3,graphs=yes";
  const auto saved = [&] { return 1 - predicted(layout + ",zero_cta=yes").step_s / predicted(layout).step_s; };
  const double with_blocks = saved();
  EXPECT_GT(with_blocks, 0);
  const Prediction zero_cta = predicted(layout + ",zero_cta=yes");
  EXPECT_EQ(zero_cta.without_zero_cta_s, predicted(layout).step_s);
  for (const TakenCollectives& taken : zero_cta.collectives) {
    EXPECT_EQ(taken.each.algorithm == CollectiveAlgorithm::copy_engine, taken.comm == schedules::Comm::all_gather);
  }
  EXPECT_EQ(predicted("dp=16,zero=3,zero_cta=yes").step_s, predicted("dp=16,zero=3").step_s) << "two nodes";
  machine.nccl->blocks = 0;
  EXPECT_LT(saved(), with_blocks) << "what is left is the copies' own speed";
  machine = load_machine("a100-pcie");
  EXPECT_EQ(core::refusal_of([&] { predicted("dp=2,zero_cta=yes"); }),
            "layout: zero_cta is yes, and machine " + machine.name +
                " has no NCCL over NVLink, whose copies take no thread blocks; allowed: no, or a machine with it");
}

TEST(Predict, ListsOfTensorsCostMoreWithMoreRanks) {
  const Machine machine = load_machine("dgx-a100");
  const auto lists_s = [&](const std::string& text) {
    const std::string layout = text + ",zero=3,overlap_params=no,recompute=full";
    return predict(small_model(), workload::parse_layout(layout + ",gather_lists=yes"), machine).step_s -
           predict(small_model(), workload::parse_layout(layout), machine).step_s;
  };
  EXPECT_GT(lists_s("dp=8"), 0);
  EXPECT_GT(lists_s("dp=256"), 8 * lists_s("dp=8"));
}

TEST(Predict, MoreOfWhatCostsTimeCostsTime) {
  const Machine machine = machine_without_limits();
  const auto step = [&](const std::string& text) {
    return predict(small_model(), workload::parse_layout(text), machine).step_s;
  };
  const std::string base = "tp=2,pp=4,dp=2,batch=64";
  EXPECT_GT(step(base + ",flash=no,recompute=full"), step(base + ",flash=no,recompute=selective"));
  EXPECT_GT(step(base + ",flash=no,recompute=selective"), step(base + ",flash=no"));
  EXPECT_GT(step(base + ",overlap_grads=no"), step(base));
  EXPECT_LT(step(base + ",schedule=interleaved,chunks=2"), step(base));
  // With tensor parallelism it has no weight gradients to hide collectives behind.
  EXPECT_LT(step("tp=1,pp=4,dp=2,batch=64,schedule=zb_h1"), step("tp=1,pp=4,dp=2,batch=64"));
}

TEST(Predict, MfuIsModelFlopsOverPeak) {
  const Machine machine = load_machine("dgx-a100");
  const workload::Layout layout = workload::parse_layout("tp=2,pp=2,dp=2,batch=32,recompute=full");
  const Prediction prediction = predict(small_model(), layout, machine);
  const double tokens = 32.0 * static_cast<double>(small_model().sequence);
  EXPECT_DOUBLE_EQ(prediction.model_flops, training_flops(small_model(), tokens, false));
  EXPECT_NEAR(prediction.mfu * prediction.step_s * 8 * machine.device.matrix_tflops * 1e12, prediction.model_flops,
              1e-3 * prediction.model_flops);
  EXPECT_GT(prediction.hfu / prediction.mfu, 1.25);
  EXPECT_LT(prediction.hfu / prediction.mfu, 4.0 / 3);
  EXPECT_LT(prediction.hfu, 1);
}

TEST(Predict, NothingIsCountedTwiceWithoutRecomputation) {
  const Prediction prediction =
      predict(small_model(), workload::parse_layout("tp=2,pp=2,dp=2,batch=32"), load_machine("dgx-a100"));
  EXPECT_EQ(prediction.hfu, prediction.mfu);
}

// Payload bytes of a rank's reductions (gathers) / bytes of its parameters in the reduced (gathered) dtype.
struct Passes {
  double reduced = 0;
  double gathered = 0;
};
Passes passes_of(const std::string& text) {
  const workload::Layout layout = workload::parse_layout(text);
  const schedules::Schedule schedule = schedule_of(layout);
  const auto plans = plans_of(small_model(), layout, schedule);
  double parameters = 0;
  for (const workload::Parameter& parameter : plans[0].parameters) {
    parameters += static_cast<double>(parameter.elems());
  }
  Passes passes;
  const schedules::Step step =
      build_step(small_model(), layout, schedule, plans, works_of(small_model(), layout, schedule));
  for (const schedules::Task& task : step.of_rank[0].tasks) {
    const auto bytes = static_cast<double>(task.amount);
    if (task.op == schedules::Op::reduce_grad) passes.reduced += bytes / (parameters * 4);
    if (task.op == schedules::Op::unshard) passes.gathered += bytes / (parameters * 2);
  }
  return passes;
}

// 4 ranks, 3 microbatches (Rajbhandari et al. 2019, section 7; what is reduced each microbatch is reduced 3 times).
TEST(Predict, ZeroStagesMoveWhatTheyMove) {
  const std::string base = "dp=4,batch=12,zero=";
  EXPECT_NEAR(passes_of(base + "0").reduced, 1, 1e-9);  // as an all-reduce: twice on the wire
  EXPECT_NEAR(passes_of(base + "0").gathered, 0, 1e-9);
  EXPECT_NEAR(passes_of(base + "1").reduced, 1, 1e-9);
  EXPECT_NEAR(passes_of(base + "1").gathered, 1, 1e-9);
  EXPECT_NEAR(passes_of(base + "2").reduced, 3, 1e-9);
  EXPECT_NEAR(passes_of(base + "2").gathered, 1, 1e-9);
  EXPECT_NEAR(passes_of(base + "3").reduced, 3, 1e-9);
  // The word embedding, which is also the head's matrix, is gathered once per step and held.
  const workload::Model model = small_model();
  const double held = static_cast<double>(model.vocabulary * model.hidden) / static_cast<double>(parameters_of(model));
  EXPECT_NEAR(passes_of(base + "3").gathered, 6 - 5 * held, 0.01);
  EXPECT_NEAR(passes_of(base + "3,reshard=no").gathered, 3 - 2 * held, 1e-9);
}

// A step takes as long as its kernels or its copies, whichever is longer: all copies overlap kernels, except for the
// first load and the last gradients.
TEST(Predict, OffloadedTensorsTakeTheTimeOfTheirBytes) {
  Machine machine = load_machine("dgx2-v100");
  const auto step_s = [&](const std::string& offload) {
    return predict(small_model(), workload::parse_layout("dp=16,batch=32,zero=3" + offload), machine).step_s;
  };
  const double here = step_s("");
  const auto shard = static_cast<double>(parameters_of(small_model())) / 16;
  const std::string all = ",offload=optimizer:file+gradients:host+parameters:host";
  machine.host_gbps = machine.nvme_gbps = 1e9;
  EXPECT_NEAR(step_s(all), here, 1e-2 * here) << "copies that take no time";
  machine.host_gbps = 0.01;
  // Two microbatches: weights of 2 bytes come for the forward; for the backward they come together with gradients of 4
  // bytes that leave (the second time together with those that come). The update brings both.
  const double copies_s = (2 * (2 + 4) + 6) * shard / 0.01e9;
  EXPECT_NEAR(step_s(",offload=gradients:host+parameters:host"), copies_s + here, 0.05 * copies_s);
  machine.nvme_gbps = 0;
  EXPECT_THROW(step_s(",offload=parameters:file"), core::Error);
}

// The previous step's update is hidden up to the length of the step.
TEST(Predict, ADelayedUpdateRunsDuringTheStep) {
  Machine machine = load_machine("dgx2-v100");
  const std::string away = "dp=16,batch=32,zero=2,offload=optimizer:host+gradients:host";
  const auto step_s = [&](const std::string& more) {
    return predict(small_model(), workload::parse_layout(away + more), machine).step_s;
  };
  EXPECT_LT(step_s(",delayed_update=yes"), step_s(""));
  machine.host_memory_gbps = 0.01;
  const auto shard = static_cast<double>(parameters_of(small_model())) / 16;
  EXPECT_NEAR(step_s(",delayed_update=yes"), (2 * 12 + 4 + 2) * shard / 0.01e9, 0.05 * 30 * shard / 0.01e9);
}

TEST(Predict, WhatDoesNotFitTheModelIsRefused) {
  EXPECT_THROW(predict(small_model(), workload::parse_layout("tp=5,pp=2,dp=2,batch=16"), load_machine("dgx-a100")),
               core::Error);
}

}  // namespace
}  // namespace lockstep::simulator
