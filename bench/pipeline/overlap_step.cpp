#include "bench/pipeline/overlap_step.h"

#include <cmath>
#include <string>

#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/passes/split_stages.h"
#include "schedules/step/check_step.h"
#include "schedules/step/lower.h"
#include "simulator/network/comm_kind.h"

namespace lockstep::pipeline {
namespace {

using schedules::Comm;
using schedules::GradientBucket;
using schedules::Op;
using schedules::Step;
using schedules::Unit;

constexpr double kBytesPerMb = 1 << 20;

// Every replica is a pipe of one stage that runs its microbatches one after another.
schedules::Schedule replicas_of(int replicas, int microbatches) {
  schedules::Schedule schedule{
      .name = "replicas", .num_microbatches = microbatches, .stages_per_pipe = 1, .rank_of_stage = {}};
  for (std::int32_t r = 0; r < replicas; ++r) {
    schedule.rank_of_stage.push_back(r);
    auto& list = schedule.of_rank.emplace_back();
    for (std::int32_t m = 0; m < microbatches; ++m) {
      list.push_back({Op::forward, r, m});
      list.push_back({Op::backward, r, m});
    }
  }
  return schedule;
}

schedules::StageRecipe layers_of(const OverlapFlags& flags, bool kernels) {
  const auto ps = [&](double ms) { return kernels ? std::llround(ms * kPsPerMs) : 0; };
  schedules::StageRecipe recipe;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    recipe.forward.push_back({.op = Op::forward, .part = layer, .amount = ps(flags.forward_ms)});
    recipe.backward.push_back({.op = Op::backward, .part = flags.layers - 1 - layer, .amount = ps(flags.backward_ms)});
  }
  return recipe;
}

std::vector<Unit> units_of(const OverlapFlags& flags) {
  std::vector<Unit> units;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    units.push_back(
        {.first_part = layer, .parameter_bytes = flags.bytes_a_layer, .gradient_bytes = flags.bytes_a_layer});
  }
  return units;
}

}  // namespace

std::vector<GradientBucket> buckets_of(const OverlapFlags& flags, const OverlapCase& one) {
  if (one.zero_stage == 3) return schedules::buckets_of(units_of(flags));
  std::vector<schedules::Parameter> parameters;
  for (std::int32_t layer = 0; layer < flags.layers; ++layer) {
    for (int t = 0; t < flags.tensors_a_layer; ++t) {
      const std::int64_t bytes = flags.bytes_a_layer / flags.tensors_a_layer;
      parameters.push_back({.elements = bytes, .grad_bytes = 1, .part = layer});
    }
  }
  const auto cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * kBytesPerMb);
  return schedules::gradient_buckets(parameters, schedules::ddp_rules(cap_bytes));
}

Step overlap_step(const OverlapFlags& flags, const OverlapCase& one, bool kernels) {
  const auto stages = static_cast<std::size_t>(one.replicas);
  Step step =
      schedules::lower(replicas_of(one.replicas, flags.microbatches), std::vector<schedules::StageCosts>(stages));
  step.groups.push_back({schedules::GroupKind::data, step.rank_of_stage});
  schedules::split_stages(step, std::vector<schedules::StageRecipe>(stages, layers_of(flags, kernels)));
  const std::vector<std::vector<GradientBucket>> buckets(stages, buckets_of(flags, one));
  const std::vector<std::vector<Unit>> units(stages, units_of(flags));
  schedules::reduce_gradients(step, buckets, {.comm = comms_of(one).front(), .every_microbatch = one.zero_stage >= 2});
  if (one.zero_stage == 3) schedules::shard_parameters(step, units, {.in_flight = flags.prefetch + 1});
  const std::int64_t optimizer_ps = kernels ? std::llround(flags.optimizer_ms * kPsPerMs) : 0;
  schedules::add_optimizer(step, std::vector<std::int64_t>(stages, optimizer_ps), schedules::Barrier::none);
  if (one.zero_stage == 1 || one.zero_stage == 2) schedules::gather_after_step(step, units);
  step.name = one.zero_stage == 0 ? "ddp" : "zero" + std::to_string(one.zero_stage);
  schedules::check_step_or_throw(step);
  return step;
}

std::vector<Comm> comms_of(const OverlapCase& one) {
  if (one.zero_stage == 0) return {Comm::all_reduce};
  return {Comm::reduce_scatter, Comm::all_gather};
}

plan::Plan plan_of(const OverlapFlags& flags, Comm comm, int ranks) {
  plan::Plan plan;
  try {
    plan = algorithms::make_plan(algorithms::parse_choice(simulator::kind_of(comm), flags.algorithm), ranks, 0);
  } catch (const core::Error& error) {
    throw core::usage_error("--algo " + flags.algorithm + ": " + error.what());
  }
  if (plan::num_lanes(plan) <= 1) return plan;
  throw core::usage_error("--algo " + flags.algorithm + ": its plan has " + std::to_string(plan::num_lanes(plan)) +
                          " lanes; allowed here: one, such as ring's or halving_doubling's");
}

}  // namespace lockstep::pipeline
