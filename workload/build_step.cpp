#include "workload/build_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/split_stages.h"
#include "schedules/step/lower.h"
#include "schedules/step/unfold.h"
#include "workload/groups.h"
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

// A forward of each microbatch, in the order in which the schedule has them.
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

// A list of `Item`s for each stage.
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

// Forward and backward in pieces, without what data-parallel ranks do.
Step pieces_of(const Model& model, const Layout& layout, const Schedule& schedule,
               const std::vector<StageWork>& works) {
  std::vector<schedules::StageCosts> costs;
  std::vector<schedules::StageRecipe> recipes;
  for (const StageWork& work : works) {
    costs.push_back({.message_bytes = work.message_bytes});  // the pieces have the times
    recipes.push_back(work.recipe);
  }
  Step step = schedules::lower(schedule, costs,
                               layout.overlap_p2p ? schedules::Sends::asynchronous : schedules::Sends::awaited);
  step.groups = groups_of_places(model, layout, schedule);
  schedules::split_stages(step, recipes);
  return step;
}

void add_data_parallel(Step& step, const Layout& layout, const std::vector<StagePlan>& plans) {
  if (data_ranks_of(layout) == 1) return;
  const std::int32_t zero = zero_of(layout);
  const bool every_microbatch = zero >= 2 || updates_every_microbatch(layout);
  schedules::reduce_gradients(
      step, for_stages<GradientBucket>(plans, [&](const StagePlan& plan) { return gradient_buckets_of(plan, layout); }),
      {.comm = zero == 0 ? Comm::all_reduce : Comm::reduce_scatter,
       .every_microbatch = every_microbatch,
       .overlapped = layout.overlap_gradients,
       .over_replicas = replicas_of(layout) > 1});
  if (zero < 3) return;
  schedules::shard_parameters(step, all_units(layout, plans),
                              {.keep = layout.reshard ? schedules::Keep::while_used : schedules::Keep::until_backward,
                               .in_flight = layout.prefetch ? 2 : 1,
                               .backward_prefetch = layout.prefetch,
                               .gather_again_after_recompute = layout.gather_lists,
                               .tile_of = tile_of_task});
}

std::vector<std::vector<schedules::BucketUpdate>> bucket_updates_of(const Layout& layout,
                                                                    const std::vector<StagePlan>& plans,
                                                                    const std::vector<StageWork>& works) {
  std::vector<std::vector<schedules::BucketUpdate>> updates;
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    const std::vector<GradientBucket> buckets = gradient_buckets_of(plans[stage], layout);
    std::vector<schedules::BucketUpdate>& made = updates.emplace_back();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      made.push_back({.ps = works[stage].update_ps[b],
                      .part = buckets[b].part,
                      .at_end = is_summed_at_end(plans[stage], b, layout)});
    }
  }
  return updates;
}

// The tasks after the last gradient: sums over other groups, the norm, the update, the gathers of its result.
void add_end_of_step(Step& step, const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                     const std::vector<StageWork>& works) {
  const std::int64_t partial = partial_norm_bytes(plans, layout);
  if (layout.tp > 1 && partial > 0) schedules::reduce_at_end(step, GroupKind::tensor, partial);
  if (model.tied_embeddings && step.stages_a_pipe > 1) {
    schedules::reduce_at_end(step, GroupKind::embedding, tied_gradient_bytes(plans.front(), layout));
  }
  if (updates_every_microbatch(layout)) {
    std::vector<std::int64_t> ps_of_stage;
    for (const StageWork& work : works) ps_of_stage.push_back(work.optimizer_ps);
    return schedules::add_updates(step, ps_of_stage);
  }
  if (layout.update == Update::per_bucket) {
    schedules::add_bucket_updates(step, bucket_updates_of(layout, plans, works));
  } else {
    std::vector<std::int64_t> optimizer_ps(static_cast<std::size_t>(step.num_ranks()));
    for (std::size_t stage = 0; stage < works.size(); ++stage) {
      optimizer_ps[static_cast<std::size_t>(step.rank_of_stage[stage])] += works[stage].optimizer_ps;
    }
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
  kernels::AdamW update{.count = count, .narrow_weights = layout.compute != core::DType::f32};
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
    const std::int64_t ps = pricing.copy ? pricing.copy(place, part.kept) : 0;
    copies.push_back({.bytes = std::llround(part.kept), .offload_ps = ps, .load_ps = ps});
  }
  return copies;
}

// The update of so many elements, in picoseconds.
std::int64_t update_ps(const Layout& layout, double elems, const Pricing& pricing) {
  std::int64_t ps = 0;
  if (!pricing.kernel) return ps;
  for (const KernelCall& call : optimizer_calls(layout, elems)) ps += pricing.kernel(call);
  if (layout.offload.optimizer == Offload::none || !pricing.offload) return ps;
  const double states = layout.compute == core::DType::f32 ? 2 : 3;  // pieces come and go beside the update of others
  return std::max(ps, pricing.offload(layout.offload.optimizer, states * sizeof(float) * elems));
}

}  // namespace

StageWork work_of(const Model& model, const Layout& layout, const StageSlice& slice, const Pricing& pricing) {
  StageWork work{.recipe = recipe_of(model, layout, slice, pricing.kernel, pricing.issue)};
  if (pricing.simplify) work.recipe = pricing.simplify(work.recipe);
  work.copies = copies_of(model, layout, slice, pricing);
  work.message_bytes = message_bytes(model, layout);
  if (layout.update == Update::per_bucket) {
    const StagePlan plan = plan_of(model, layout, slice);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      work.update_ps.push_back(update_ps(layout, static_cast<double>(updated_elems(plan, b, layout)), pricing));
      work.optimizer_ps += work.update_ps.back();
    }
    return work;
  }
  const ElemCount elems = count_elems(model, layout, slice);
  work.optimizer_ps = update_ps(layout, zero_of(layout) > 0 ? elems.shard : elems.whole, pricing);
  return work;
}

std::vector<StagePlan> plans_of(const Model& model, const Layout& layout, const Schedule& schedule) {
  std::vector<StagePlan> plans;
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    plans.push_back(
        plan_of(model, layout, slice_of(model, layout, schedule.stages_a_pipe, stage % schedule.stages_a_pipe)));
  }
  return plans;
}

std::vector<StageWork> works_of(const Model& model, const Layout& layout, const Schedule& schedule,
                                const Pricing& pricing) {
  std::vector<StageSlice> slices;
  std::vector<StageWork> works;
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const StageSlice slice = slice_of(model, layout, schedule.stages_a_pipe, stage % schedule.stages_a_pipe);
    const auto same =
        std::find_if(slices.begin(), slices.end(), [&](const StageSlice& other) { return other.like(slice); });
    StageWork work = same == slices.end() ? work_of(model, layout, slice, pricing)
                                          : works[static_cast<std::size_t>(same - slices.begin())];
    slices.push_back(slice);
    works.push_back(std::move(work));
  }
  return works;
}

Step build_step(const Model& model, const Layout& layout, const Schedule& schedule, const std::vector<StagePlan>& plans,
                const std::vector<StageWork>& works) {
  Step step = pieces_of(model, layout, schedule, works);
  add_data_parallel(step, layout, plans);
  add_end_of_step(step, model, layout, plans, works);
  if (layout.offload.activations == Offload::none) return step;
  std::vector<std::vector<schedules::CopyCosts>> copies;
  for (const StageWork& work : works) copies.push_back(work.copies);
  schedules::offload_activations(step, copies, layout.offload_ahead);
  return step;
}

Step build_forward(const Model& model, const Layout& layout, const Schedule& schedule,
                   const std::vector<StagePlan>& plans, const std::vector<StageWork>& works) {
  Step step = pieces_of(model, layout, forwards_of(schedule), works);
  if (zero_of(layout) == 3) {
    schedules::shard_parameters(step, all_units(layout, plans),
                                {.keep = schedules::Keep::while_used, .tile_of = tile_of_task});
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
