#include "trainer/worker/step_end.h"

#include <algorithm>
#include <limits>

#include "kernels/bucket/bucket.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduction.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"
#include "workload/memory.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;
using schedules::GroupKind;

// the factor and the norm, after the schedules
constexpr std::int64_t kTaken = 2;
static_assert(kernels::kOptimizerSchedule + kTaken == workload::step_numbers(1), "as is predicted");

std::int64_t total_of(const std::vector<kernels::InOut>& pieces) {
  std::int64_t elems = 0;
  for (const kernels::InOut& piece : pieces) elems += piece.elems;
  return elems;
}

}  // namespace

StepEnd::Shared StepEnd::shared_of(GroupKind kind) {
  Shared shared;
  shared.same = kind == GroupKind::embedding;
  for (RankStage& stage : model_.stages()) {
    for (std::size_t p = 0; p < stage.plan->parameters.size(); ++p) {
      if (!workload::is_summed_over(kind, *stage.plan, p, model_.layout())) continue;
      const kernels::InOut own = stage.store->own_gradient_of(p);
      if (own.given()) shared.pieces.push_back(own);
    }
  }
  return shared;
}

kernels::InOut StepEnd::pack(GroupKind kind, const kernels::Context& where) {
  const Shared shared = shared_of(kind);
  if (shared.pieces.empty()) return {};
  const std::int64_t elems = shared.same ? shared.pieces.front().elems : total_of(shared.pieces);
  packed_ = model_.memory().make(MemoryKind::buffers, shared.pieces.front().dtype, elems);
  kernels::PackBucket pack;
  for (const kernels::InOut& piece : shared.pieces) {
    pack.counts.push_back(piece.elems);
    pack.pieces.push_back(piece.in());
    if (shared.same) break;
  }
  pack.bucket = packed_.out();
  kernels::run(pack, where);
  for (std::size_t i = 1; shared.same && i < shared.pieces.size(); ++i) {
    const kernels::ResidualAdd add{elems, packed_.in(), shared.pieces[i].in(), packed_.out()};
    kernels::run(add, where);
  }
  return packed_.inout();
}

void StepEnd::unpack(GroupKind kind, const kernels::Context& where) {
  const Shared shared = shared_of(kind);
  if (shared.pieces.empty()) return;
  std::int64_t begin = 0;
  for (const kernels::InOut& piece : shared.pieces) {
    kernels::UnpackBucket unpack;
    unpack.counts = {piece.elems};
    unpack.bucket = packed_.in(begin, piece.elems);
    unpack.pieces = {piece.out()};
    kernels::run(unpack, where);
    if (!shared.same) begin += piece.elems;
  }
  packed_.reset();
}

kernels::InOut StepEnd::own_square(const kernels::Context& where) {
  const auto stages = static_cast<std::int64_t>(model_.stages().size());
  kernels::Reduction sum{.count = 1, .num_sources = stages, .dtype = core::DType::f64};
  for (RankStage& stage : model_.stages()) {
    const auto place = 1 + static_cast<std::int64_t>(sum.sources.size());
    const auto counts_here = [&](std::size_t parameter) {
      return workload::counts_in_norm(*stage.plan, parameter, model_.layout(), model_.place());
    };
    stage.store->sum_of_squares(counts_here, squares_.out(place, 1), where);
    sum.sources.push_back(squares_.in(place, 1));
  }
  sum.destination = squares_.out(0, 1);
  kernels::run(sum, where);
  has_square_ = true;
  return squares_.inout(0, 1);
}

void StepEnd::give(const UpdateRules& rules) {
  rules_ = rules;
  core::Device& device = model_.memory().device();
  if (!given_.given()) {
    given_ = core::PinnedMemory(device, static_cast<std::size_t>(factor_place() + 1) * sizeof(float));
    taken_ = core::PinnedMemory(device, kTaken * sizeof(float));
  }
  for (std::int64_t update = 0; update < updates_; ++update) {
    const std::int64_t number = (rules.step - 1) * updates_ + update + 1;
    const auto schedule = kernels::optimizer_schedule(model_.layout().optimizer, rules.optimizer, number);
    std::copy(schedule.begin(), schedule.end(), given_.as<float>() + schedule_place(update));
  }
  given_.as<float>()[factor_place()] = gradient_scale();
}

void StepEnd::begin_step() {
  has_square_ = false;
  if (!numbers_.given()) {
    const auto stages = static_cast<std::int64_t>(model_.stages().size());
    numbers_ = model_.memory().make(MemoryKind::buffers, core::DType::f32, workload::step_numbers(updates_));
    squares_ = model_.memory().make(MemoryKind::buffers, core::DType::f64, 1 + stages);
  }
  parallel::queue_to_device(model_.memory().device(), model_.where(), numbers_.out(0, factor_place() + 1),
                            given_.as<float>());
}

// The same formula as torch.nn.utils.clip_grad_norm_ (kernels::ClipFactor).
void StepEnd::update() {
  if (has_square_) {
    kernels::ClipFactor clip{.shards = 1, .most = std::numeric_limits<float>::max(), .grad_scale = gradient_scale()};
    if (rules_.most_norm > 0) clip.most = rules_.most_norm;
    clip.sums = squares_.in(0, 1);
    clip.factor = numbers_.out(factor_place(), 1);
    clip.norm = numbers_.out(factor_place() + 1, 1);
    kernels::run(clip, model_.where());
  }
  if (model_.layout().delayed_update) return take_delayed();
  for (RankStage& stage : model_.stages()) {
    model_.versions().before_update(*stage.store);
    stage.store->update(rules_.optimizer, numbers_of(0));
  }
}

void StepEnd::update_bucket(RankStage& stage, std::int32_t bucket) {
  stage.store->update(bucket, rules_.optimizer, numbers_of(0));
}

void StepEnd::delayed_update() {
  if (!delayed_) return;
  for (RankStage& stage : model_.stages()) {
    stage.store->delayed_update(delayed_->optimizer, delayed_->step, delayed_->factor);
  }
  delayed_.reset();
  has_delayed_ = true;
}

void StepEnd::take_delayed() {
  for (RankStage& stage : model_.stages()) {
    if (has_delayed_) stage.store->take_update();
    if (!has_delayed_) stage.store->give_up_gathered();
  }
  has_delayed_ = false;
}

void StepEnd::settle() {
  delayed_update();
  if (has_delayed_) take_delayed();
}

void StepEnd::update(RankStage& stage, std::int32_t microbatch) {
  stage.store->release(microbatch);
  stage.store->update(rules_.optimizer, numbers_of(microbatch));
  stage.store->zero_gradients();
}

parallel::ParameterStore::UpdateOnDevice StepEnd::numbers_of(std::int64_t update) const {
  return {.factor = numbers_.in(factor_place(), 1),
          .schedule = numbers_.in(schedule_place(update), kernels::kOptimizerSchedule)};
}

void StepEnd::end_step() {
  parallel::queue_to_host(model_.memory().device(), model_.where(), taken_.as<float>(),
                          numbers_.in(factor_place(), kTaken));
}

void StepEnd::take_results() {
  if (!has_square_) return;
  const auto* const taken = taken_.as<float>();
  skipped_ = !(taken[0] > 0);
  norm_ = static_cast<double>(taken[1]);
  if (!model_.layout().delayed_update || skipped_ || rules_.rehearses) return;
  delayed_ = Delayed{rules_.optimizer, rules_.step, taken[0]};
  for (RankStage& stage : model_.stages()) stage.store->keep_gradients();
}

}  // namespace lockstep::trainer
