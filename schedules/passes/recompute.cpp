#include "schedules/passes/recompute.h"

#include "core/error.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kNoGroup = -1;

std::int32_t group_of(const Piece& piece, const Recomputation& what) {
  if (piece.part < 0 || piece.part < what.first_part) return kNoGroup;
  return (piece.part - what.first_part) / what.parts_together;
}

// The pieces of the forward that run again, of a group of parts.
void repeat_group(const StageRecipe& recipe, const Recomputation& what, std::int32_t group, std::vector<Piece>& to) {
  for (Piece piece : recipe.forward) {
    if (group_of(piece, what) != group || !what.again(piece)) continue;
    if (piece.comm == Comm::none) piece.op = Op::recompute;
    to.push_back(piece);
  }
}

std::vector<Piece> with_repeats(const StageRecipe& recipe, const Recomputation& what,
                                const std::vector<Piece>& backward) {
  std::vector<Piece> all;
  std::int32_t repeated = kNoGroup;  // the group that was made last; the backward goes through groups once
  for (const Piece& piece : backward) {
    const std::int32_t group = group_of(piece, what);
    if (group != kNoGroup && group != repeated) {
      repeat_group(recipe, what, group, all);
      repeated = group;
    }
    all.push_back(piece);
  }
  return all;
}

}  // namespace

StageRecipe with_recomputation(const StageRecipe& recipe, const Recomputation& what) {
  LOCKSTEP_CHECK(what.parts_together >= 1, "at least one part");
  StageRecipe with = recipe;
  if (!what.again) return with;
  with.backward = with_repeats(recipe, what, recipe.backward);
  with.input_gradient = with_repeats(recipe, what, recipe.input_gradient);
  return with;
}

}  // namespace lockstep::schedules
