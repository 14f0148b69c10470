// The list of all algorithms.
#include "collectives/algorithms/generators.h"

namespace lockstep::algorithms {

namespace {

using collectives::Kind;

std::optional<std::string> any(const Shape&) {
  return std::nullopt;
}

std::vector<Option> ring_options() {
  return {{"directions", 1, 1, 2, "2: half of the data goes round backwards"},
          {"lanes", 1, 1, 8, "rings side by side in each direction"}};
}

std::vector<Algorithm> make_catalogue() {
  const char* patarasuk = "Patarasuk, Yuan 2009, J. Parallel Distrib. Comput. 69";
  const char* mpich_doubling = "MPICH allreduce_intra_recursive_doubling.c; Thakur, Rabenseifner, Gropp 2005, 4.5";
  const char* vllm = "vLLM csrc/custom_all_reduce.cuh";
  return {
      {Kind::all_reduce, "ring", "reduce-scatter, then all-gather, around a circle", patarasuk, ring_options(), any,
       ring_all_reduce},
      {Kind::all_reduce,
       "recursive_doubling",
       "whole vectors exchanged with the rank that differs in one bit",
       mpich_doubling,
       {},
       any,
       recursive_doubling_all_reduce},
      {Kind::all_reduce, "one_shot", "everybody reads everybody's vector", vllm, {}, any, one_shot_all_reduce},
      {Kind::all_reduce,
       "two_shot",
       "everybody sums one piece, then reads the others' sums",
       vllm,
       {},
       any,
       two_shot_all_reduce},
      {Kind::reduce_scatter, "ring", "each block collects its sum on the way around", patarasuk, ring_options(), any,
       ring_reduce_scatter},
      {Kind::all_gather, "ring", "each block goes around", patarasuk, ring_options(), any, ring_all_gather},
  };
}

}  // namespace

std::span<const Algorithm> catalogue() {
  static const std::vector<Algorithm> all = make_catalogue();
  return all;
}

}  // namespace lockstep::algorithms
