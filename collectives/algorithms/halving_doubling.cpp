// Rabenseifner's all-reduce: reduce-scatter by recursive halving, all-gather by recursive doubling. As few bytes as a
// ring, in 2 lg p steps.
//
// In halving step k a rank exchanges with the one that differs in bit k: of the range that both still work on, it sends
// one half and sums the other. The biggest exchange is with the nearest rank. Doubling undoes the steps backwards.
//
//   4 ranks, 4 chunks:   start        step 0 (bit 0)     step 1 (bit 1)
//              rank 0    0 1 2 3      0 1                0
//              rank 1    0 1 2 3          2 3                2
//              rank 2    0 1 2 3      0 1                  1
//              rank 3    0 1 2 3          2 3                  3
//
// Source: Rabenseifner, Optimization of collective reduction operations, ICCS 2004, section 4; MPICH,
//   allreduce_intra_reduce_scatter_allgather.c.
// Steps: 2 lg p, plus 2 if p is not a power of two (folding.h). Bytes per rank: 2 S (q-1)/q, plus S at the ranks with a
//   guest, q the largest power of two.
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/folding.h"

namespace lockstep::algorithms {

using plan::Buffer;
using plan::PlanBuilder;

namespace {

// Halves of the range that core rank v works on before the step of `bit`: the one that it keeps, and the other.
struct Halves {
  int kept;
  int given;
  int count;
};

Halves halves_of(int v, int bit, int core) {
  int first = 0;
  int count = core / 2;
  for (int b = 1; b < bit; b *= 2, count /= 2) first += (v & b) != 0 ? count : 0;
  const bool upper = (v & bit) != 0;
  return {upper ? first + count : first, upper ? first : first + count, count};
}

void add_halving_rank(PlanBuilder& builder, const Folding& folding, int v) {
  const int r = folding.rank_of(v);
  const int core = folding.core();
  Buffer sum = Buffer::input;
  if (folding.has_guest(v)) {
    builder.recv_reduce(r, folding.guest_of(v), plan::output(0, core), plan::input(0, core));
    sum = Buffer::output;
  }
  for (int bit = 1; bit < core; bit *= 2) {
    const int peer = folding.rank_of(v ^ bit);
    const Halves halves = halves_of(v, bit, core);
    builder.send(r, peer, {sum, halves.given, halves.count});
    builder.recv_reduce(r, peer, plan::output(halves.kept, halves.count), {sum, halves.kept, halves.count});
    sum = Buffer::output;
  }
  for (int bit = core / 2; bit >= 1; bit /= 2) {
    const int peer = folding.rank_of(v ^ bit);
    const Halves halves = halves_of(v, bit, core);
    builder.send(r, peer, plan::output(halves.kept, halves.count));
    builder.recv(r, peer, plan::output(halves.given, halves.count));
  }
  if (folding.has_guest(v)) builder.send(r, folding.guest_of(v), plan::output(0, core));
}

}  // namespace

plan::Plan halving_doubling_all_reduce(const Shape& shape) {
  const Folding folding(shape.num_ranks);
  const int core = folding.core();
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, core);
  for (int v = 0; v < core; ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0, core));
    add_halving_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0, core));
  }
  return builder.finish("halving_doubling");
}

}  // namespace lockstep::algorithms
