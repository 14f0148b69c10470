#include "schedules/passes/passes.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {
namespace {

std::span<const Piece> pieces_of(const StageRecipe& recipe, Op op) {
  switch (op) {
    case Op::forward:
      return recipe.forward;
    case Op::backward:
      return recipe.backward;
    case Op::input_gradient:
      return recipe.input_gradient;
    case Op::weight_gradient:
      return recipe.weight_gradient;
    default:
      return {};
  }
}

class RankSplit {
 public:
  RankSplit(const RankStep& old, std::span<const StageRecipe> recipes, std::int32_t slices, const GroupTable& groups,
            std::int32_t rank)
      : old_(old), recipes_(recipes), slices_(slices), groups_(groups), rank_(rank), out_(old) {
    std::size_t pieces = 0;
    for (const Task& task : old.tasks) pieces += std::max<std::size_t>(pieces_of_task(task).size(), 1);
    out_.reserve(pieces, old.after.size() + pieces);
  }

  RankStep run() {
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      if (const auto pieces = pieces_of_task(task); !pieces.empty()) {
        split(i, pieces);
      } else if (task.lane == Lane::compute) {
        last_kernel_ = out_.keep(i, next_waits_for_);
        pass_piece();
      } else {
        out_.keep(i);
      }
    }
    return out_.take();
  }

 private:
  std::span<const Piece> pieces_of_task(const Task& task) const {
    if (!is_compute(task.op)) return {};
    return pieces_of(recipes_[work_index(task.stage, task.microbatch, slices_)], task.op);
  }

  void split(std::uint32_t i, std::span<const Piece> pieces) {
    edges_.clear();
    out_.add_edges_of(i, edges_);
    std::uint32_t kernel = kNoTask;  // last kernel of this action
    std::uint32_t collective = kNoTask;
    for (const Piece& piece : pieces) {
      if (piece.comm == Comm::none) {
        kernel = put_kernel(old_.tasks[i], piece);
      } else {
        collective = put_collective(old_.tasks[i], piece);
      }
      edges_.clear();
    }
    // Either the collective or the kernel may end last, whichever was issued first.
    out_.replace(i, kernel == kNoTask ? collective : kernel, kernel == kNoTask ? kNoTask : collective);
  }

  std::uint32_t put_kernel(const Task& whole, const Piece& piece) {
    if (next_waits_for_ != kNoTask) edges_.push_back(next_waits_for_);
    last_kernel_ = out_.put({.op = piece.op,
                             .what = piece.what,
                             .stage = whole.stage,
                             .microbatch = whole.microbatch,
                             .part = piece.part,
                             .amount = piece.amount,
                             .issue_ps = piece.issue_ps},
                            edges_);
    pass_piece();
    return last_kernel_;
  }

  std::uint32_t put_collective(const Task& whole, const Piece& piece) {
    if (last_kernel_ != kNoTask) edges_.push_back(last_kernel_);
    const std::uint32_t put = out_.put({.op = Op::layer_collective,
                                        .lane = Lane::tensor,
                                        .comm = piece.comm,
                                        .what = piece.what,
                                        .stage = whole.stage,
                                        .microbatch = whole.microbatch,
                                        .part = piece.part,
                                        .peer = group_of(whole, piece.group),
                                        .amount = piece.amount,
                                        .issue_ps = piece.issue_ps},
                                       edges_);
    // A lane runs in order: waiting for this collective implies waiting for those before it.
    if (piece.overlaps_next) {
      after_next_ = put;
    } else {
      next_waits_for_ = put;
      after_next_ = kNoTask;
    }
    return put;
  }

  void pass_piece() {
    next_waits_for_ = after_next_;
    after_next_ = kNoTask;
  }

  std::int32_t group_of(const Task& whole, GroupKind kind) const {
    const std::int32_t group = groups_.find(rank_, kind);
    return group >= 0 ? group : groups_.of(rank_, kind, "the recipe of stage " + std::to_string(whole.stage));
  }

  const RankStep& old_;
  std::span<const StageRecipe> recipes_;
  std::int32_t slices_;
  const GroupTable& groups_;
  std::int32_t rank_;
  RankRewriter out_;
  std::uint32_t last_kernel_ = kNoTask;
  std::uint32_t next_waits_for_ = kNoTask;  // collective that the next kernel waits for
  std::uint32_t after_next_ = kNoTask;      // collective that the piece after the next waits for
  std::vector<std::uint32_t> edges_;
};

}  // namespace

void split_stages(Step& step, std::span<const StageRecipe> recipes) {
  if (recipes.size() != step.rank_of_stage.size() * static_cast<std::size_t>(step.slices)) {
    throw core::usage_error(step.name + ": " + std::to_string(recipes.size()) + " recipes for " +
                            std::to_string(step.num_stages()) + " stages" +
                            (step.slices > 1 ? " and " + std::to_string(step.slices) + " slices" : "") +
                            "; allowed: one per stage and slice");
  }
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    of_rank = RankSplit(of_rank, recipes, step.slices, groups, rank).run();
  }
}

}  // namespace lockstep::schedules
