// The generators that catalogue.cpp lists. All are pure functions of the shape; they may assume at least two ranks
// (make_plan does one rank itself) and integers that their `refuse` accepts.
#pragma once

#include "collectives/algorithms/algorithm.h"

namespace lockstep::algorithms {

// ring.cpp
plan::Plan ring_all_reduce(const Shape& shape);
plan::Plan ring_reduce_scatter(const Shape& shape);
plan::Plan ring_all_gather(const Shape& shape);

// one_shot.cpp
plan::Plan one_shot_all_reduce(const Shape& shape);
plan::Plan two_shot_all_reduce(const Shape& shape);

// recursive_doubling.cpp
plan::Plan recursive_doubling_all_reduce(const Shape& shape);

}  // namespace lockstep::algorithms
