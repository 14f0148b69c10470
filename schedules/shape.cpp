#include "schedules/shape.h"

namespace lockstep::schedules {

std::vector<std::int32_t> looped_placement(std::int32_t ranks, std::int32_t chunks) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t s = 0; s < ranks * chunks; ++s) rank_of.push_back(s % ranks);
  return rank_of;
}

std::vector<std::int32_t> folded_placement(std::int32_t ranks, std::int32_t chunks) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t s = 0; s < ranks * chunks; ++s) {
    rank_of.push_back(s / ranks % 2 == 0 ? s % ranks : ranks - 1 - s % ranks);
  }
  return rank_of;
}

std::vector<std::int32_t> opposite_placement(std::int32_t ranks) {
  return folded_placement(ranks, 2);  // the second pipe begins at the fold
}

}  // namespace lockstep::schedules
