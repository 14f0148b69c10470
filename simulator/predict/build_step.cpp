#include "simulator/predict/build_step.h"

#include <algorithm>
#include <cmath>

#include "schedules/passes/buckets.h"
#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/passes/split_stages.h"
#include "schedules/step/groups.h"
#include "schedules/step/lower.h"
#include "simulator/layout/groups.h"
#include "simulator/network/collective_time.h"
#include "simulator/predict/fold_pieces.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GradientBucket;
using schedules::GroupKind;
using schedules::Schedule;
using schedules::Unit;

constexpr std::int64_t kWeightBytes = 2;  // 16-bit weights
constexpr double kPsPerUs = 1e6;

// A list of `Item`s for each stage.
template <class Item, class Make>
std::vector<std::vector<Item>> for_stages(const std::vector<StageWork>& works, const Make& make) {
  std::vector<std::vector<Item>> all;
  all.reserve(works.size());
  for (const StageWork& work : works) all.push_back(make(work));
  return all;
}

std::vector<GradientBucket> buckets_for(const StageWork& work, const Layout& layout) {
  std::vector<schedules::Parameter> parameters;
  for (const TensorParameters& tensor : work.tensors) {
    parameters.push_back({.elements = tensor.elements,
                          .grad_bytes = layout.grad_bytes,
                          .part = tensor.part,
                          .group = tensor.expert ? GroupKind::expert_data : GroupKind::data});
  }
  const auto cap = static_cast<std::int64_t>(layout.bucket_mb * double{1 << 20});
  return schedules::gradient_buckets(parameters, cap == 0 ? schedules::one_bucket() : schedules::ddp_rules(cap));
}

std::vector<Unit> units_for(const StageWork& work, const Layout& layout) {
  std::vector<Unit> units;
  for (std::size_t part = 0; part < work.parts.size(); ++part) {
    const auto add = [&](std::int64_t elements, GroupKind group) {
      if (elements == 0) return;
      units.push_back({.first_part = static_cast<std::int32_t>(part),
                       .parameter_bytes = elements * kWeightBytes,
                       .gradient_bytes = elements * layout.grad_bytes,
                       .group = group});
    };
    add(work.parts[part].dense, GroupKind::data);
    add(work.parts[part].expert, GroupKind::expert_data);
  }
  return units;
}

// What gradients are summed over beside their own group.
std::vector<GroupKind> also_over(const Layout& layout, const std::vector<schedules::Group>& copies) {
  std::vector<GroupKind> kinds;
  if (layout.shard_ranks > 0) kinds.push_back(GroupKind::replicas);
  if (!copies.empty()) kinds.push_back(GroupKind::copies);
  return kinds;
}

void add_data_parallel(PipelineStep& made, const std::vector<StageWork>& works, const Layout& layout,
                       std::vector<GroupKind> then_over) {
  schedules::ReduceOptions reduce{.comm = layout.zero == 0 ? Comm::all_reduce : Comm::reduce_scatter,
                                  .every_microbatch = layout.zero >= 2,
                                  .overlapped = layout.overlap_grads,
                                  .then_over = std::move(then_over)};
  if (layout.zero < 3) {
    schedules::reduce_gradients(
        made.step, for_stages<GradientBucket>(works, [&](const auto& work) { return buckets_for(work, layout); }),
        reduce);
    return;
  }
  const auto units = for_stages<Unit>(works, [&](const auto& work) { return units_for(work, layout); });
  schedules::reduce_gradients(
      made.step,
      for_stages<GradientBucket>(works,
                                 [&](const auto& work) { return schedules::buckets_of(units_for(work, layout)); }),
      reduce);
  schedules::shard_parameters(made.step, units,
                              {.keep = layout.reshard ? schedules::Keep::while_used : schedules::Keep::until_backward,
                               .in_flight = layout.overlap_params ? 2 : 1,
                               .backward_prefetch = layout.overlap_params});
}

// The embedding's matrix, which the last stage has as well.
std::int64_t tied_bytes(const Model& model, const Layout& layout) {
  return words_a_rank(model, layout) * model.hidden * layout.grad_bytes;
}

std::vector<std::int64_t> optimizer_of_ranks(const Schedule& schedule, const std::vector<StageWork>& works) {
  std::vector<std::int64_t> ps(schedule.of_rank.size());
  for (std::size_t stage = 0; stage < works.size(); ++stage) {
    ps[static_cast<std::size_t>(schedule.rank_of_stage[stage])] += works[stage].optimizer_ps;
  }
  return ps;
}

}  // namespace

CollectivePrice price_in(const Layout& layout, const Machine& machine) {
  std::vector<std::vector<std::int64_t>> members(schedules::kNumGroupKinds, {1});
  for (const auto& [kind, of_layout] : repeated_groups()) {
    members[static_cast<std::size_t>(kind)] = members_a_level(machine, group_of(layout, of_layout, 0));
  }
  return [machine, members](Comm comm, GroupKind kind, std::int64_t bytes) {
    const auto best =
        best_collective(machine, comm, static_cast<double>(bytes), members[static_cast<std::size_t>(kind)]);
    return static_cast<std::int64_t>(std::llround(best.time_us() * kPsPerUs));
  };
}

std::vector<StageWork> stage_works(const Model& model, const Layout& layout, const Machine& machine,
                                   const Schedule& schedule, Detail detail) {
  const CollectivePrice price = price_in(layout, machine);
  std::vector<std::pair<StageSlice, StageWork>> known;
  std::vector<StageWork> works;
  works.reserve(schedule.rank_of_stage.size());
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const StageSlice slice = slice_of(model, layout, schedule.stages_a_pipe, stage % schedule.stages_a_pipe);
    const auto same =
        std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.first.like(slice); });
    if (same != known.end()) {
      works.push_back(same->second);
      continue;
    }
    StageWork work = work_of(model, layout, machine.device, slice);
    if (detail == Detail::folded) work.recipe = fold_pieces(work.recipe, price);
    known.emplace_back(slice, work);
    works.push_back(std::move(work));
  }
  return works;
}

PipelineStep build_step(const Model& model, const Layout& layout, const Machine& machine, const Schedule& schedule,
                        Detail detail) {
  const std::vector<StageWork> works = stage_works(model, layout, machine, schedule, detail);
  std::vector<schedules::StageCosts> costs;
  std::vector<schedules::StageRecipe> recipes;
  for (const StageWork& work : works) {
    costs.push_back({.message_bytes = work.message_bytes});  // the pieces have the times
    recipes.push_back(work.recipe);
  }
  PipelineStep made;
  made.step = schedules::lower(schedule, costs,
                               layout.overlap_p2p ? schedules::Sends::asynchronous : schedules::Sends::awaited);
  const std::vector<schedules::Group> copies = schedules::groups_of_copies(made.step);
  made.groups = groups_of_pipeline(model, layout, machine, copies);
  made.step.groups = made.groups.groups;

  schedules::split_stages(made.step, recipes);
  const bool replicas = std::int64_t{layout.dp} * layout.cp > 1;
  if (replicas || !copies.empty()) add_data_parallel(made, works, layout, also_over(layout, copies));
  if (model.tied_embeddings && layout.pp > 1) {
    schedules::reduce_at_end(made.step, GroupKind::embedding, tied_bytes(model, layout));
  }
  schedules::add_optimizer(made.step, optimizer_of_ranks(schedule, works), schedules::Barrier::norm);
  if (replicas && (layout.zero == 1 || layout.zero == 2)) {
    schedules::gather_after_step(made.step,
                                 for_stages<Unit>(works, [&](const auto& work) { return units_for(work, layout); }));
  }
  return made;
}

}  // namespace lockstep::simulator
