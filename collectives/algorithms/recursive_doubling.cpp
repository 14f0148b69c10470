// Recursive doubling all-reduce: in step k each rank exchanges its whole partial sum with the rank whose number differs
// in bit k; after lg p steps all ranks have the result. Fewest steps, most bytes: for small sizes.
//
//   step 0:  0<->1  2<->3  4<->5  6<->7      step 1:  0<->2  1<->3 ...      step 2:  0<->4  1<->5 ...
//
// A partial sum is never written to the slot that is being sent: two scratch slots alternate, the last sum goes to
// output. So ranks that read each other's memory in place need not wait for each other before they write.
//
// Source: MPICH, allreduce_intra_recursive_doubling.c; Thakur, Rabenseifner, Gropp, Optimization of collective
//   communication operations in MPICH (2005), section 4.5.
// Steps: lg p; floor(lg p) + 2 if p is not a power of two (Folding). Bytes per rank: S lg p; S (floor(lg p) + 1).
#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/building_blocks.h"

namespace lockstep::algorithms {

using plan::Buffer;
using plan::PlanBuilder;
using plan::Slice;

namespace {

// Slots of one rank's partial sum and of the next one: the last of `sums` goes to output.
class Accumulator {
 public:
  explicit Accumulator(int sums) : left_(sums) {}
  Slice now() const { return now_; }
  Slice next() const { return left_ == 1 ? plan::output(0) : plan::scratch(left_ % 2); }
  void advance() {
    now_ = next();
    --left_;
  }

 private:
  Slice now_ = plan::input(0);
  int left_;
};

int num_sums(const Folding& folding, int v) {
  return log2_of_power(folding.core()) + (folding.has_guest(v) ? 1 : 0);
}

void add_core_rank(PlanBuilder& builder, const Folding& folding, int v) {
  const int r = folding.rank_of(v);
  Accumulator sum(num_sums(folding, v));
  if (folding.has_guest(v)) {
    builder.recv_reduce(r, folding.guest_of(v), sum.next(), sum.now());
    sum.advance();
  }
  for (int bit = 1; bit < folding.core(); bit *= 2) {
    const int peer = folding.rank_of(v ^ bit);
    builder.send(r, peer, sum.now());
    builder.recv_reduce(r, peer, sum.next(), sum.now());
    sum.advance();
  }
  if (folding.has_guest(v)) builder.send(r, folding.guest_of(v), plan::output(0));
}

}  // namespace

void recursive_doubling_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const Folding folding(shape.num_ranks);
  builder.take_scratch(std::min(num_sums(folding, 0) - 1, 2));
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0));
    add_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0));
  }
}

// Reduce-scatter by recursive halving, all-gather by recursive doubling, and the hypercube exchange, which is the
// latter for powers of two only.
//
//   all-gather, 4 ranks:   0 1 2 3  ->  01 01 23 23  ->  0123 0123 0123 0123
//   reduce-scatter: the same read backwards; the first and biggest exchange is with the farthest rank
//
// Blocks stay in rank order, so each exchange is one contiguous slice. If p is not a power of two, a core rank with a
// guest works for two blocks (Folding).
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH (2005), sections
//   4.1 and 4.3; MPICH, reduce_scatter_block_intra_recursive_halving.c. hypercube: nccl-tests, hypercube.cu.
// Steps: lg p; floor(lg p) + 2 if p is not a power of two. Bytes per rank (S = p blocks): S (p-1)/p; with folding
// guests
//   send S (reduce-scatter), or their hosts send S more (all-gather).

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

void recursive_doubling(PlanBuilder& builder, const Shape& shape) {
  const Folding folding(shape.num_ranks);
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0));
    gather_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0, shape.num_ranks));
  }
}

void recursive_halving_reduce_scatter(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  const Folding folding(p);
  int most = 0;
  for (int v = 0; v < folding.core(); ++v) most = std::max(most, kept_first(folding, v).count);
  if (p > 2) builder.take_scratch(most);
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0, p));
    halve_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0));
  }
}

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
// Steps: 2 lg p, plus 2 if p is not a power of two (Folding). Bytes per rank: 2 S (q-1)/q, plus S at the ranks with a
//   guest, q the largest power of two.

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

void halving_doubling_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const Folding folding(shape.num_ranks);
  const int core = folding.core();
  builder.cut_blocks(core);
  for (int v = 0; v < core; ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0, core));
    add_halving_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0, core));
  }
}

}  // namespace lockstep::algorithms
