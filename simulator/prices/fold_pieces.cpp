#include "simulator/prices/fold_pieces.h"

#include <algorithm>

#include "workload/operations.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::Piece;

// True if both are of one part and one tile, as the weights of a tile are gathered separately.
bool is_alike(const Piece& a, const Piece& b) {
  return a.op == b.op && a.part == b.part &&
         tile_of(workload::piece_named(a.what)) == tile_of(workload::piece_named(b.what));
}

class Folding {
 public:
  Folding(const CollectivePrice& price, double taken) : price_(price), taken_(taken) {}

  std::vector<Piece> fold(const std::vector<Piece>& pieces) {
    made_.clear();
    first_ps_ = 0;
    first_issue_ps_ = 0;
    for (const Piece& piece : pieces) {
      if (piece.comm == Comm::none) {
        kernel(piece);
      } else {
        collective(piece);
      }
    }
    settle();
    if (!made_.empty()) {
      made_.front().amount += first_ps_;
      made_.front().issue_ps += first_issue_ps_;
    }
    return merged();
  }

 private:
  void kernel(Piece piece) {
    piece.amount = together_ps(piece.amount, beside_ps_, taken_);
    beside_ps_ = 0;
    made_.push_back(piece);
  }

  void collective(const Piece& piece) {
    settle();  // a lane runs one collective at a time
    beside_ps_ = price_(piece.comm, piece.group, piece.amount);
    (made_.empty() ? first_issue_ps_ : made_.back().issue_ps) += piece.issue_ps;
    if (!piece.beside_next) settle();
  }

  // Waits for the collective in flight.
  void settle() {
    (made_.empty() ? first_ps_ : made_.back().amount) += beside_ps_;
    beside_ps_ = 0;
  }

  std::vector<Piece> merged() const {
    std::vector<Piece> fewer;
    for (const Piece& piece : made_) {
      if (!fewer.empty() && is_alike(fewer.back(), piece)) {
        fewer.back().amount += piece.amount;
        fewer.back().issue_ps += piece.issue_ps;
      } else {
        fewer.push_back(piece);
      }
    }
    return fewer;
  }

  const CollectivePrice& price_;
  double taken_ = 0;
  std::vector<Piece> made_;
  std::int64_t beside_ps_ = 0;
  std::int64_t first_ps_ = 0;  // time of collectives before the first kernel
  std::int64_t first_issue_ps_ = 0;
};

std::vector<Piece> merged(const std::vector<Piece>& pieces) {
  std::vector<Piece> fewer;
  bool mergeable = false;
  for (const Piece& piece : pieces) {
    if (piece.comm != Comm::none) {
      mergeable = false;
      fewer.push_back(piece);
      continue;
    }
    if (piece.amount == 0) continue;
    if (mergeable && is_alike(fewer.back(), piece)) {
      fewer.back().amount += piece.amount;
      fewer.back().issue_ps += piece.issue_ps;
      continue;
    }
    // A kernel after one that a collective overlaps waits for that collective: it stays a piece of its own.
    mergeable = fewer.empty() || !fewer.back().beside_next;
    fewer.push_back(piece);
  }
  return fewer;
}

}  // namespace

schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe) {
  return {merged(recipe.forward), merged(recipe.backward), merged(recipe.input_gradient),
          merged(recipe.weight_gradient)};
}

schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price, double taken) {
  Folding folding(price, taken);
  return {folding.fold(recipe.forward), folding.fold(recipe.backward), folding.fold(recipe.input_gradient),
          folding.fold(recipe.weight_gradient)};
}

}  // namespace lockstep::simulator
