// Reduce-scatter by recursive halving, all-gather by recursive doubling, and the hypercube exchange, which is the
// latter for powers of two only.
//
//   all-gather, 4 ranks:   0 1 2 3  ->  01 01 23 23  ->  0123 0123 0123 0123
//   reduce-scatter: the same read backwards; the first and biggest exchange is with the farthest rank
//
// Blocks stay in rank order, so each exchange is one contiguous slice. If p is not a power of two, a core rank with a
// guest works for two blocks (folding.h).
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH (2005), sections
//   4.1 and 4.3; MPICH, reduce_scatter_block_intra_recursive_halving.c. hypercube: nccl-tests, hypercube.cu.
// Steps: lg p; floor(lg p) + 2 if p is not a power of two. Bytes per rank (S = p blocks): S (p-1)/p; with folding
// guests
//   send S (reduce-scatter), or their hosts send S more (all-gather).
#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/folding.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::Buffer;
using plan::PlanBuilder;
using plan::Slice;

namespace {

// Blocks of `count` core ranks from core rank `first` on.
Slice blocks_of(const Folding& folding, Buffer buffer, int first, int count) {
  const int begin = folding.first_block(first);
  return {buffer, begin, folding.first_block(first + count) - begin};
}

// Start of the aligned range of `width` core ranks that contains v.
int range_of(int v, int width) {
  return v / width * width;
}

void gather_core_rank(PlanBuilder& builder, const Folding& folding, int v) {
  const int r = folding.rank_of(v);
  builder.copy(r, plan::output(r), plan::input(0));
  if (folding.has_guest(v)) builder.recv(r, folding.guest_of(v), plan::output(folding.guest_of(v)));
  for (int bit = 1; bit < folding.core(); bit *= 2) {
    const int peer = folding.rank_of(v ^ bit);
    builder.send(r, peer, blocks_of(folding, Buffer::output, range_of(v, bit), bit));
    builder.recv(r, peer, blocks_of(folding, Buffer::output, range_of(v ^ bit, bit), bit));
  }
  if (folding.has_guest(v)) builder.send(r, folding.guest_of(v), plan::output(0, folding.first_block(folding.core())));
}

plan::Plan doubling(Kind kind, int num_ranks, const char* name) {
  const Folding folding(num_ranks);
  PlanBuilder builder(kind, num_ranks, 0, 1);
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0));
    gather_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0, num_ranks));
  }
  return builder.finish(name);
}

// Blocks that core rank v sums first, and keeps in scratch from slot 0 on: all blocks if it has a guest, else half of
// them.
Slice kept_first(const Folding& folding, int v) {
  if (folding.has_guest(v) || folding.core() == 1) return blocks_of(folding, Buffer::input, 0, folding.core());
  const int half = folding.core() / 2;
  return blocks_of(folding, Buffer::input, range_of(v, half), half);
}

void halve_core_rank(PlanBuilder& builder, const Folding& folding, int v) {
  const int r = folding.rank_of(v);
  const int base = kept_first(folding, v).first;
  const auto in_scratch = [base](Slice s) { return plan::scratch(s.first - base, s.count); };
  bool summed = false;
  const auto where = [&](Slice s) { return summed ? in_scratch(s) : s; };
  if (folding.has_guest(v)) {
    const Slice all = kept_first(folding, v);
    builder.recv_reduce(r, folding.guest_of(v), in_scratch(all), all);
    summed = true;
  }
  for (int bit = folding.core() / 2; bit >= 1; bit /= 2) {
    const int peer = folding.rank_of(v ^ bit);
    const Slice given = blocks_of(folding, Buffer::input, range_of(v ^ bit, bit), bit);
    const Slice kept = blocks_of(folding, Buffer::input, range_of(v, bit), bit);
    builder.send(r, peer, where(given));
    const bool is_last = bit == 1 && !folding.has_guest(v);
    builder.recv_reduce(r, peer, is_last ? plan::output(0) : in_scratch(kept), where(kept));
    summed = true;
  }
  if (folding.has_guest(v)) {
    builder.send(r, folding.guest_of(v), in_scratch(plan::input(folding.guest_of(v))));
    builder.copy(r, plan::output(0), in_scratch(plan::input(r)));
  }
}

}  // namespace

plan::Plan recursive_doubling_all_gather(const Shape& shape) {
  return doubling(Kind::all_gather, shape.num_ranks, "recursive_doubling");
}

plan::Plan exchange_hypercube(const Shape& shape) {
  return doubling(Kind::hypercube, shape.num_ranks, "exchange");
}

plan::Plan recursive_halving_reduce_scatter(const Shape& shape) {
  const int p = shape.num_ranks;
  const Folding folding(p);
  PlanBuilder builder(Kind::reduce_scatter, p, 0, 1);
  int most = 0;
  for (int v = 0; v < folding.core(); ++v) most = std::max(most, kept_first(folding, v).count);
  if (p > 2) builder.take_scratch(most);
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0, p));
    halve_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0));
  }
  return builder.finish("recursive_halving");
}

}  // namespace lockstep::algorithms
