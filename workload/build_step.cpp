#include "workload/build_step.h"

#include <algorithm>
#include <cmath>

#include "schedules/passes/passes.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/memory.h"
#include "workload/parameters.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GradientBucket;
using schedules::GroupKind;
using schedules::Schedule;
using schedules::Step;
using schedules::Unit;

// Returns only the forwards of each microbatch, in the schedule's order.
Schedule forwards_of(Schedule schedule) {
  schedule.name += " (forward only)";
  for (auto& actions : schedule.of_rank) {
    std::erase_if(actions, [](const schedules::Action& action) { return action.op != schedules::Op::forward; });
    for (schedules::Action& action : actions) action.with_next = false;
  }
  return schedule;
}

std::int32_t tile_of_task(const schedules::Task& task) {
  return tile_of(piece_named(task.what));
}

// Makes a list of `Item`s for each stage.
template <class Item, class Make>
std::vector<std::vector<Item>> for_stages(const std::vector<StagePlan>& plans, const Make& make) {
  std::vector<std::vector<Item>> all;
  all.reserve(plans.size());
  for (const StagePlan& plan : plans) all.push_back(make(plan));
  return all;
}

std::vector<std::vector<Unit>> all_units(const Layout& layout, const std::vector<StagePlan>& plans) {
  return for_stages<Unit>(plans, [&](const StagePlan& plan) { return units_of(plan, layout); });
}

// Forward and backward in pieces, without communication of data-parallel ranks.
Step pieces_of(const Model& model, const Layout& layout, const Schedule& schedule,
               const std::vector<StageWork>& works) {
  std::vector<schedules::StageCosts> costs;
  std::vector<schedules::StageRecipe> recipes;
  for (const StageWork& work : works) {
    costs.push_back({.message_bytes = work.message_bytes, .kept_bytes = work.kept_bytes});  // the pieces have the times
    recipes.push_back(work.recipe);
  }
  Step step = schedules::lower(schedule, costs,
                               layout.overlap_p2p ? schedules::Sends::asynchronous : schedules::Sends::awaited);
  step.groups = groups_of_places(model, layout, schedule);
  schedules::split_stages(step, recipes);
  return step;
}

// Bytes of one rank's shard of data that a group of ranks shares.
double shard_bytes(const Layout& layout, GroupKind group, std::int64_t whole_bytes) {
  const bool of_experts = group == GroupKind::expert_data;
  return static_cast<double>(whole_bytes) / shard_index(layout, {}, of_experts).shards;
}

std::int64_t copy_ps(const Pricing& pricing, Offload place, double to_device, double from_device) {
  return pricing.copy ? pricing.copy(place, to_device, from_device) : 0;
}

void load_shards(Step& step, const Layout& layout, const std::vector<StagePlan>& plans, const Pricing& pricing) {
  if (layout.offload.parameters == Offload::none) return;
  const auto units = all_units(layout, plans);
  const auto time = [&](std::int32_t stage, std::int32_t u) {
    const Unit& unit = units[static_cast<std::size_t>(stage)][static_cast<std::size_t>(u)];
    return copy_ps(pricing, layout.offload.parameters, shard_bytes(layout, unit.group, unit.parameter_bytes), 0);
  };
  schedules::load_parameters(step, time, layout.offload_ahead);
}

void offload_shards(Step& step, const Layout& layout, const std::vector<StagePlan>& plans, const Pricing& pricing) {
  if (layout.offload.gradients == Offload::none) return;
  const auto buckets =
      for_stages<GradientBucket>(plans, [&](const StagePlan& plan) { return gradient_buckets_of(plan, layout); });
  const auto time = [&](std::int32_t stage, std::int32_t b, bool adds) {
    const GradientBucket& bucket = buckets[static_cast<std::size_t>(stage)][static_cast<std::size_t>(b)];
    const double bytes = shard_bytes(layout, bucket.group, bucket.bytes);
    return copy_ps(pricing, layout.offload.gradients, adds ? bytes : 0, bytes);
  };
  schedules::offload_gradients(step, time, layout.offload_ahead);
}

void add_data_parallel(Step& step, const Layout& layout, const std::vector<StagePlan>& plans, const Pricing& pricing) {
  if (data_ranks_of(layout) == 1) return;
  const std::int32_t zero = zero_of(layout);
  const bool every_microbatch = zero >= 2 || updates_every_microbatch(layout);
  schedules::reduce_gradients(
      step, for_stages<GradientBucket>(plans, [&](const StagePlan& plan) { return gradient_buckets_of(plan, layout); }),
      {.comm = zero == 0 ? Comm::all_reduce : Comm::reduce_scatter,
       .every_microbatch = every_microbatch,
       .overlapped = layout.overlap_gradients,
       .over_replicas = replicas_of(layout) > 1});
  if (zero == 3) {
    schedules::shard_parameters(step, all_units(layout, plans),
                                {.keep = layout.reshard ? schedules::Keep::while_used : schedules::Keep::until_backward,
                                 .in_flight = layout.prefetch ? 2 : 1,
                                 .backward_prefetch = layout.prefetch,
                                 .gather_again_after_recompute = layout.gather_lists,
                                 .tile_of = tile_of_task,
                                 .secondary = layout.secondary_ranks > 0});
  }
  load_shards(step, layout, plans, pricing);
  offload_shards(step, layout, plans, pricing);
}

std::vector<std::vector<schedules::BucketUpdate>> bucket_updates_of(const Layout& layout,
                                                                    const std::vector<StagePlan>& plans,
                                                                    const std::vector<StageWork>& works) {
  std::vector<std::vector<schedules::BucketUpdate>> updates;
  const std::size_t slices = works.size() / plans.size();
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    const std::vector<GradientBucket> buckets = gradient_buckets_of(plans[stage], layout);
    std::vector<schedules::BucketUpdate>& made = updates.emplace_back();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      made.push_back({.ps = works[stage * slices].update_ps[b],
                      .part = buckets[b].part,
                      .at_end = is_summed_at_end(plans[stage], b, layout)});
    }
  }
  return updates;
}

// Adds the tasks after the last gradient: sums over other groups, the norm, the update, the gathers of its result.
void add_end_of_step(Step& step, const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                     const std::vector<StageWork>& works) {
  for (const GroupKind kind : kTensorGroups) {
    const std::int64_t partial = partial_bytes(kind, plans, layout);
    if (layout.tp > 1 && partial > 0) schedules::reduce_at_end(step, kind, partial);
  }
  if (model.tied_embeddings && step.stages_per_pipe > 1) {
    schedules::reduce_at_end(step, GroupKind::embedding, tied_gradient_bytes(plans.front(), layout));
  }
  if (updates_every_microbatch(layout)) {
    std::vector<std::int64_t> ps_of_stage;
    for (std::int32_t stage = 0; stage < step.num_stages(); ++stage) {
      ps_of_stage.push_back(works[schedules::work_index(stage, 0, step.slices)].optimizer_ps);
    }
    return schedules::add_updates(step, ps_of_stage);
  }
  if (layout.update == Update::per_bucket) {
    schedules::add_bucket_updates(step, bucket_updates_of(layout, plans, works));
  } else {
    std::vector<std::int64_t> optimizer_ps(static_cast<std::size_t>(step.num_ranks()));
    std::vector<std::int64_t> host_ps(optimizer_ps);
    for (std::int32_t stage = 0; stage < step.num_stages(); ++stage) {
      const auto rank = static_cast<std::size_t>(step.rank_of_stage[static_cast<std::size_t>(stage)]);
      const StageWork& work = works[schedules::work_index(stage, 0, step.slices)];
      optimizer_ps[rank] += work.optimizer_ps;
      host_ps[rank] += work.host_ps;
    }
    if (layout.delayed_update) schedules::update_during_step(step, host_ps);
    schedules::add_optimizer(step, optimizer_ps, schedules::Barrier::norm);
  }
  if (zero_of(layout) == 1 || zero_of(layout) == 2) schedules::gather_after_step(step, all_units(layout, plans));
}

}  // namespace

std::vector<KernelCall> optimizer_calls(const Layout& layout, double elems) {
  const auto count = static_cast<std::int64_t>(elems);
  if (count == 0) return {};
  kernels::SumOfSquares norm{.count = count};
  norm = kernels::shaped(norm, layout.gradient);
  kernels::OptimizerStep update{
      .count = count, .kind = layout.optimizer, .narrow_weights = layout.compute != core::DType::f32};
  update = kernels::shaped(update, layout.gradient);
  if (update.narrow_weights) update.weights.dtype = layout.compute;
  if (layout.update == Update::per_bucket) return {{update, 1}};
  return {{norm, 1}, {update, 1}};
}

namespace {

std::vector<schedules::CopyCosts> copies_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                            const Pricing& pricing) {
  std::vector<schedules::CopyCosts> copies;
  const Offload place = layout.offload.activations;
  if (place == Offload::none) return copies;
  for (const StageActivations& part : part_activations_of(model, layout, slice)) {
    copies.push_back({.bytes = std::llround(part.kept),
                      .offload_ps = copy_ps(pricing, place, 0, part.kept),
                      .load_ps = copy_ps(pricing, place, part.kept, 0)});
  }
  return copies;
}

// Bytes per element that an update copies from a storage location to the device, and back.
struct UpdateCopies {
  double to_device = 0;
  double from_device = 0;
};
UpdateCopies update_copies(const Layout& layout, Offload place) {
  const auto elem_bytes = offload_elem_bytes(layout.optimizer, layout.compute, layout.gradient);
  const auto of = [&](OffloadKind kind, Offload at) {
    return at == place ? static_cast<double>(elem_bytes[static_cast<std::size_t>(kind)]) : 0;
  };
  const double changed =
      of(OffloadKind::optimizer, layout.offload.optimizer) + of(OffloadKind::parameters, layout.offload.parameters);
  return {.to_device = changed + of(OffloadKind::gradients, layout.offload.gradients), .from_device = changed};
}

// Time in ps to update this many elements: copies of pieces overlap with the update of other pieces.
std::int64_t update_ps(const Layout& layout, double elems, const Pricing& pricing) {
  std::int64_t ps = 0;
  if (!pricing.kernel) return ps;
  for (const KernelCall& call : optimizer_calls(layout, elems)) ps += pricing.kernel(call);
  for (const Offload place : {Offload::host, Offload::file}) {
    const UpdateCopies bytes = update_copies(layout, place);
    if (bytes.to_device == 0) continue;
    ps = std::max(ps, copy_ps(pricing, place, bytes.to_device * elems, bytes.from_device * elems));
  }
  return ps;
}

// The host updates tensors in its memory, or in files, and the device receives the new weights.
void add_delayed_update(StageWork& work, const Layout& layout, double updated, const Pricing& pricing) {
  const auto calls = optimizer_calls(layout, updated);
  if (calls.empty() || !pricing.kernel) return;
  work.optimizer_ps = pricing.kernel(calls.front());  // the norm
  const auto elem_bytes = offload_elem_bytes(layout.optimizer, layout.compute, layout.gradient);
  const auto states = static_cast<double>(elem_bytes[0]);
  const auto weights = static_cast<double>(elem_bytes[2]);
  if (pricing.host) {
    work.host_ps = pricing.host((2 * states + static_cast<double>(elem_bytes[1]) + weights) * updated);
  }
  const UpdateCopies files = update_copies(layout, Offload::file);
  if (files.to_device > 0) {
    work.host_ps =
        std::max(work.host_ps, copy_ps(pricing, Offload::file, files.to_device * updated, files.from_device * updated));
  }
  if (layout.offload.parameters == Offload::none) {
    work.optimizer_ps += copy_ps(pricing, Offload::host, weights * updated, 0);
  }
}

}  // namespace

StageWork work_of(const Model& model, const Layout& layout, const StageSlice& slice, const Pricing& pricing) {
  StageWork work{.recipe = recipe_of(model, layout, slice, pricing.kernel, pricing.issue)};
  if (pricing.simplify) work.recipe = pricing.simplify(work.recipe);
  work.copies = copies_of(model, layout, slice, pricing);
  work.message_bytes = message_bytes(of_tokens(model, slice), layout);
  if (layout.update == Update::per_bucket) {
    const StagePlan plan = plan_of(model, layout, slice);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      work.update_ps.push_back(update_ps(layout, static_cast<double>(updated_elems(plan, b, layout)), pricing));
      work.optimizer_ps += work.update_ps.back();
    }
    return work;
  }
  const ElemCount elems = count_elems(model, layout, slice);
  const double updated = zero_of(layout) > 0 ? elems.shard : elems.whole;
  if (layout.delayed_update) {
    add_delayed_update(work, layout, updated, pricing);
  } else {
    work.optimizer_ps = update_ps(layout, updated, pricing);
  }
  return work;
}

std::vector<StagePlan> plans_of(const Model& model, const Layout& layout, const Schedule& schedule) {
  std::vector<StagePlan> plans;
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    plans.push_back(
        plan_of(model, layout, slice_of(model, layout, schedule.stages_per_pipe, stage % schedule.stages_per_pipe)));
  }
  return plans;
}

std::vector<StageWork> works_of(const Model& model, const Layout& layout, const Schedule& schedule,
                                const Pricing& pricing) {
  const bool evicts = evicts_activations(schedule);
  std::vector<StageSlice> slices;
  std::vector<StageWork> works;
  for (std::int32_t i = 0; i < schedule.num_stages() * schedule.slices(); ++i) {
    const std::int32_t stage = i / schedule.slices();
    const StageSlice slice =
        slice_of(model, layout, schedule.stages_per_pipe, stage % schedule.stages_per_pipe, i % schedule.slices());
    const auto same =
        std::find_if(slices.begin(), slices.end(), [&](const StageSlice& other) { return other.like(slice); });
    if (same == slices.end()) {
      works.push_back(work_of(model, layout, slice, pricing));
      if (evicts) works.back().kept_bytes = std::llround(activations_of(model, layout, slice).kept);
    } else {
      works.push_back(StageWork(works[static_cast<std::size_t>(same - slices.begin())]));
    }
    slices.push_back(slice);
  }
  return works;
}

Step build_step(const Model& model, const Layout& layout, const Schedule& schedule, const std::vector<StagePlan>& plans,
                const std::vector<StageWork>& works, const Pricing& pricing) {
  Step step = pieces_of(model, layout, schedule, works);
  add_data_parallel(step, layout, plans, pricing);
  add_end_of_step(step, model, layout, plans, works);
  if (layout.offload.activations == Offload::none) return step;
  std::vector<std::vector<schedules::CopyCosts>> copies;
  for (const StageWork& work : works) copies.push_back(work.copies);
  schedules::offload_activations(step, copies, layout.offload_ahead);
  return step;
}

Step build_forward(const Model& model, const Layout& layout, const Schedule& schedule,
                   const std::vector<StagePlan>& plans, const std::vector<StageWork>& works, const Pricing& pricing) {
  Step step = pieces_of(model, layout, forwards_of(schedule), works);
  if (zero_of(layout) == 3) {
    schedules::shard_parameters(step, all_units(layout, plans),
                                {.keep = schedules::Keep::while_used, .tile_of = tile_of_task});
    load_shards(step, layout, plans, pricing);
  }
  return step;
}

Step unfolded(const Step& step, const Layout& layout) {
  return schedules::unfold(step, layout.ranks() / layout.pp, static_cast<std::int32_t>(stride_of(layout, Axis::pp)),
                           [&](const schedules::Group& folded, std::int32_t rank) {
                             std::vector<std::int32_t> members;
                             for (const RankSet& run : members_of(layout, folded, rank)) {
                               for (std::int64_t i = 0; i < run.count; ++i) {
                                 members.push_back(static_cast<std::int32_t>(run.at(i)));
                               }
                             }
                             return members;
                           });
}

}  // namespace lockstep::workload
