// One step planned by mini_train and by simulate: the same texts make the same tasks, edges and bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"
#include "trainer/step/train_step.h"
#include "workload/build_step.h"

namespace lockstep {
namespace {

using schedules::Comm;
using schedules::Step;
using schedules::Task;

// Every kind of parallelism, sharding, recomputation and schedule that the trainer has; each pair of them occurs.
const std::vector<std::string>& layouts() {
  static const std::vector<std::string> kLayouts = {
      "dp=1",
      "dp=4,batch=16,microbatch=2,dtype=f32",
      "dp=4,batch=16,zero=1,grad_dtype=bf16",
      "dp=4,batch=16,zero=2,bucket_mb=0.1,overlap_grads=no",
      "dp=4,batch=8,zero=3,overlap_params=no,recompute=full,early_stop=yes",
      "dp=8,batch=16,zero=3,shard_ranks=4,reshard=no",
      "tp=4,batch=2,dtype=f16,recompute=selective",
      "tp=2,dp=2,sp=yes,batch=8,recompute=full,recompute_every=2",
      "pp=3,batch=6,layers=1:2:1,overlap_p2p=yes",
      "tp=2,pp=2,dp=2,batch=16,sp=yes,zero=2,schedule=interleaved,chunks=2",
      "pp=2,dp=2,batch=16,schedule=zb_h1,tp=2",
      "pp=2,batch=8,schedule=zb_v,overlap_tp=no,tp=2",
      "pp=4,batch=8,schedule=chimera,dp=2,microbatch=1",
      "pp=2,batch=8,schedule=dualpipe,zero=1",
      "pp=2,tp=2,batch=4,sp=yes,schedule=seq1f1b,slices=4",
      "pp=4,dp=2,batch=16,zero=1,schedule=bpipe",
      "cp=2,batch=2,cp_way=colossal,flash=no",
  };
  return kLayouts;
}

std::string text_of(const Task& task) {
  return std::to_string(static_cast<int>(task.op)) + " in lane " + std::string(name_of(task.lane)) + " of stage " +
         std::to_string(task.stage) + ", microbatch " + std::to_string(task.microbatch) + ", part " +
         std::to_string(task.part) + ", piece " + std::to_string(task.what) + ", peer " + std::to_string(task.peer) +
         ", tag " + std::to_string(task.tag) + ", " + std::string(name_of(task.comm)) + ", " +
         (task.comm != Comm::none ? std::to_string(task.amount) + " bytes" : "");
}

// Only the simulator prices kernels.
void expect_equal(const Step& a, const Step& b) {
  ASSERT_EQ(a.num_ranks(), b.num_ranks());
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (std::size_t g = 0; g < a.groups.size(); ++g) {
    EXPECT_EQ(a.groups[g].kind, b.groups[g].kind);
    EXPECT_EQ(a.groups[g].ranks, b.groups[g].ranks);
  }
  for (std::size_t r = 0; r < a.of_rank.size(); ++r) {
    const auto& tasks = a.of_rank[r].tasks;
    ASSERT_EQ(tasks.size(), b.of_rank[r].tasks.size()) << "rank " << r;
    EXPECT_EQ(a.of_rank[r].after, b.of_rank[r].after) << "rank " << r;
    for (std::size_t i = 0; i < tasks.size(); ++i) ASSERT_EQ(text_of(tasks[i]), text_of(b.of_rank[r].tasks[i]));
  }
}

TEST(TwoDoors, MakeTheSameStep) {
  const workload::Model model = workload::parse_model("nano,sequence=32");
  const simulator::Machine machine = simulator::load_machine("dgx-a100");
  for (const std::string& text : layouts()) {
    SCOPED_TRACE(text);
    const workload::Layout layout = workload::parse_layout(text);
    trainer::check_layout(model, layout);
    const trainer::TrainStep trained = trainer::make_train_step(model, layout);

    const schedules::Schedule schedule = schedule_of(layout);
    workload::Pricing pricing = pricing_of(model, layout, schedule, machine, simulator::Detail::pieces);
    pricing.simplify = {};  // no merging of tasks in the simulator
    const auto works = works_of(model, layout, schedule, pricing);
    expect_equal(trained.step,
                 unfolded(build_step(model, layout, schedule, plans_of(model, layout, schedule), works), layout));
  }
}

// A sequence of kernels as one piece takes as long as one by one.
TEST(TwoDoors, WhatTheSimulatorLeavesTogetherTakesAsLong) {
  const workload::Model model = workload::parse_model("nano,sequence=32");
  const simulator::Machine machine = simulator::load_machine("dgx-a100");
  for (const std::string& text : layouts()) {
    const workload::Layout layout = workload::parse_layout(text);
    const schedules::Schedule schedule = schedule_of(layout);
    workload::Pricing pricing = pricing_of(model, layout, schedule, machine, simulator::Detail::pieces);
    const auto kernels_ps = [&] {
      std::int64_t ps = 0;
      for (const workload::StageWork& work : works_of(model, layout, schedule, pricing)) {
        for (const auto* list : {&work.recipe.forward, &work.recipe.backward}) {
          for (const schedules::Piece& piece : *list) ps += piece.comm == Comm::none ? piece.amount : 0;
        }
      }
      return ps;
    };
    const std::int64_t merged = kernels_ps();
    pricing.simplify = {};
    EXPECT_EQ(kernels_ps(), merged) << text;
    EXPECT_GT(merged, 0) << text;
  }
}

}  // namespace
}  // namespace lockstep
