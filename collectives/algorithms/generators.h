// The generators that catalogue.cpp lists, by source file. All are pure functions of the shape; they may assume at
// least two ranks (make_plan does one rank itself) and integers that their `refuse` accepts.
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

// double_tree.cpp
plan::Plan double_tree_all_reduce(const Shape& shape);
plan::Plan double_tree_broadcast(const Shape& shape);
plan::Plan double_tree_reduce(const Shape& shape);

// single_tree.cpp
plan::Plan tree_all_reduce(const Shape& shape);
plan::Plan binary_tree_all_reduce(const Shape& shape);
plan::Plan chain_broadcast(const Shape& shape);
plan::Plan chain_reduce(const Shape& shape);
plan::Plan binary_tree_broadcast(const Shape& shape);
plan::Plan binary_tree_reduce(const Shape& shape);
plan::Plan binomial_broadcast(const Shape& shape);
plan::Plan binomial_reduce(const Shape& shape);
plan::Plan direct_broadcast(const Shape& shape);
plan::Plan direct_reduce(const Shape& shape);

// recursive_doubling.cpp, halving_doubling.cpp, recursive_halving.cpp
plan::Plan recursive_doubling_all_reduce(const Shape& shape);
plan::Plan halving_doubling_all_reduce(const Shape& shape);
plan::Plan recursive_halving_reduce_scatter(const Shape& shape);
plan::Plan recursive_doubling_all_gather(const Shape& shape);
plan::Plan exchange_hypercube(const Shape& shape);

// bruck.cpp, bruck_all_to_all.cpp
plan::Plan bruck_all_reduce(const Shape& shape);
plan::Plan bruck_reduce_scatter(const Shape& shape);
plan::Plan bruck_all_gather(const Shape& shape);
plan::Plan bruck_all_to_all(const Shape& shape);

// pat.cpp
plan::Plan pat_reduce_scatter(const Shape& shape);
plan::Plan pat_all_gather(const Shape& shape);

// two_level.cpp, hierarchical_all_to_all.cpp
plan::Plan hierarchical_all_reduce(const Shape& shape);
plan::Plan ring_2d_all_reduce(const Shape& shape);
plan::Plan hierarchical_all_to_all(const Shape& shape);
// The option "group"; where it is 0, num_ranks over its largest divisor that is no greater than its square root.
int group_size(const Shape& shape);
std::optional<std::string> refuse_non_divisor(const Shape& shape, std::string_view option);

// scatter_gather.cpp, gather_tree.cpp
plan::Plan scatter_allgather_broadcast(const Shape& shape);
plan::Plan reduce_scatter_gather_reduce(const Shape& shape);
plan::Plan binomial_gather(const Shape& shape);
plan::Plan binomial_scatter(const Shape& shape);

// direct.cpp, all_to_all.cpp
plan::Plan direct_reduce_scatter(const Shape& shape);
plan::Plan direct_all_gather(const Shape& shape);
plan::Plan direct_gather(const Shape& shape);
plan::Plan direct_scatter(const Shape& shape);
plan::Plan direct_send_recv(const Shape& shape);
plan::Plan pairwise_all_to_all(const Shape& shape);
plan::Plan direct_all_to_all(const Shape& shape);
plan::Plan pairwise_all_to_all_v(const Shape& shape);
plan::Plan direct_all_to_all_v(const Shape& shape);

}  // namespace lockstep::algorithms
