#include "trainer/step/train_step.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/options.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/memory.h"
#include "workload/rules.h"

namespace lockstep::trainer {
namespace {

// An invalid step is the user's error if the schedule is the user's, otherwise a bug in a generator.
schedules::Step checked(schedules::Step step, const workload::Layout& layout) {
  if (layout.own_schedule == nullptr) {
    schedules::check_step_or_throw(step);
    return step;
  }
  const auto problems = schedules::check_step(step, 1);
  if (problems.empty()) return step;
  throw core::usage_error("the schedule " + step.name +
                          " cannot be trained: " + schedules::text_of(step, problems.front()) +
                          "; allowed: one whose copies of a stage do the same in the same order");
}

}  // namespace

void check_layout(const workload::Model& model, const workload::Layout& layout) {
  if (const std::string reason = why_invalid(model); !reason.empty()) throw core::usage_error("model: " + reason);
  if (const std::string why = why_not_trained(model, layout); !why.empty()) throw core::usage_error(why);
}

TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout) {
  const schedules::Schedule schedule = schedule_of(layout);
  const std::vector<workload::StageWork> works = works_of(model, layout, schedule);
  TrainStep made;
  made.layout = layout;
  made.stages = plans_of(model, layout, schedule);
  made.step = checked(unfolded(build_step(model, layout, schedule, made.stages, works), layout), layout);
  made.forward = checked(unfolded(build_forward(model, layout, schedule, made.stages, works), layout), layout);
  return made;
}

namespace {

// Repeats the step of one replica on the ranks of every replica.
schedules::Step repeated(const schedules::Step& pipeline, const workload::Layout& replica,
                         const workload::Layout& layout) {
  const auto members_of = [&](const schedules::Group& folded, std::int32_t rank) {
    workload::Coordinates at = coordinates_of(layout, rank);
    const std::int32_t own = std::exchange(at.dp, 0);
    std::vector<std::int32_t> members;
    for (const workload::RankSet& run : workload::members_of(replica, folded, rank_at(replica, at))) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        at = coordinates_of(replica, run.at(i));
        at.dp = own;
        members.push_back(rank_at(layout, at));
      }
    }
    return members;
  };
  return schedules::unfold(pipeline, layout.ranks() / layout.pp,
                           static_cast<std::int32_t>(stride_of(layout, workload::Axis::pp)), members_of);
}

}  // namespace

TrainStep make_replicated_step(const workload::Model& model, const workload::Layout& layout) {
  TrainStep made;
  made.layout = layout;
  made.layout.dp = 1;
  const schedules::Schedule schedule = schedule_of(made.layout);
  const std::vector<workload::StageWork> works = works_of(model, made.layout, schedule);
  made.stages = plans_of(model, made.layout, schedule);
  const auto on_all = [&](const schedules::Step& step) { return checked(repeated(step, made.layout, layout), layout); };
  made.step = on_all(build_step(model, made.layout, schedule, made.stages, works));
  made.forward = on_all(build_forward(model, made.layout, schedule, made.stages, works));
  return made;
}

schedules::Step make_part_step(const workload::Model& model, const workload::Layout& layout,
                               const workload::StageSlice& slice, std::span<const workload::OperationKind> kinds) {
  using schedules::Op;
  const std::vector<workload::StagePlan> plans{plan_of(model, layout, slice)};
  const std::vector<workload::StageWork> works{work_of(model, layout, slice)};
  schedules::Step step = build_step(model, layout, schedule_of(layout), plans, works);
  schedules::leave_out(step, [kinds](const schedules::Task& task) {
    const bool is_piece = task.op == Op::forward || task.op == Op::backward || task.op == Op::layer_collective;
    return !is_piece || std::find(kinds.begin(), kinds.end(), workload::piece_named(task.what).kind) == kinds.end();
  });
  return checked(unfolded(step, layout), layout);
}

workload::Coordinates place_in_step(const TrainStep& made, const workload::Layout& layout, std::int32_t rank) {
  if (rank >= layout.ranks()) return {};
  workload::Coordinates at = coordinates_of(layout, rank);
  if (made.layout.dp != layout.dp) at.dp = 0;
  return at;
}

std::vector<std::int32_t> stages_of(const TrainStep& made, std::int32_t pipeline_place) {
  std::vector<std::int32_t> stages;
  for (std::int32_t s = 0; s < made.step.num_stages(); ++s) {
    if (made.step.rank_of_stage[static_cast<std::size_t>(s)] == pipeline_place) stages.push_back(s);
  }
  return stages;
}

namespace {

using parallel::MemoryKind;

std::int64_t& of(parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

void add(parallel::BytesByKind& to, const parallel::BytesByKind& more) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += more[k];
}

}  // namespace

double kept_share_for_w(const workload::Model& model, const workload::Layout& layout) {
  const workload::StageActivations layer = activations_of(model, layout, {.layers = 1});
  return layer.later / layer.kept;
}

workload::HeldBytes memory_need(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                                std::int32_t rank) {
  return workload::held_in_step(model, layout, made.stages, made.step, rank);
}

parallel::BytesByKind most_needed(const TrainStep& made, const workload::Model& model, const workload::Layout& layout) {
  parallel::BytesByKind most = {};
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const parallel::BytesByKind need = memory_need(made, model, layout, rank).at_peak();
    if (parallel::total_of(need) > parallel::total_of(most)) most = need;
  }
  return most;
}

namespace {

// Throws if these ranks need more than is available at `place`: "this host", "cuda:0".
void check_ranks(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                 std::span<const std::int32_t> ranks, std::int64_t available_bytes, const std::string& place) {
  parallel::BytesByKind all = {};
  for (const std::int32_t rank : ranks) add(all, memory_need(made, model, layout, rank).at_peak());
  const std::int64_t needed = parallel::total_of(all);
  if (needed <= available_bytes) return;
  const bool activations = of(all, MemoryKind::activations) > needed / 2;
  const std::string wider = replicas_of(layout) > 1 ? "a larger --shard-ranks, " : "";
  throw core::usage_error(
      model.name + " on " + std::to_string(ranks.size()) + " ranks of " + place + " needs about " +
      core::format_size(needed) + " (" + core::format_size(of(all, MemoryKind::activations)) +
      " for activations), and there are " + core::format_size(available_bytes) + "; what helps: " +
      (activations ? "--recompute full, a smaller --microbatch-size with more --microbatches, or a smaller --length"
                   : wider + "--dtype bf16, --zero 3 with more --dp, or a smaller --model"));
}

}  // namespace

void check_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                  std::int64_t available_bytes) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  check_ranks(made, model, layout, ranks, available_bytes, "this host");
}

void check_gpu_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                      const std::vector<GpuRoom>& gpus) {
  for (const GpuRoom& gpu : gpus) check_ranks(made, model, layout, gpu.ranks, gpu.free_bytes, gpu.name);
}

}  // namespace lockstep::trainer
