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
// Steps: lg p; floor(lg p) + 2 if p is not a power of two (folding.h). Bytes per rank: S lg p; S (floor(lg p) + 1).
#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/folding.h"

namespace lockstep::algorithms {

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

plan::Plan recursive_doubling_all_reduce(const Shape& shape) {
  const Folding folding(shape.num_ranks);
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, 1);
  builder.take_scratch(std::min(num_sums(folding, 0) - 1, 2));
  for (int v = 0; v < folding.core(); ++v) {
    if (folding.has_guest(v)) builder.send(folding.guest_of(v), folding.rank_of(v), plan::input(0));
    add_core_rank(builder, folding, v);
    if (folding.has_guest(v)) builder.recv(folding.guest_of(v), folding.rank_of(v), plan::output(0));
  }
  return builder.finish("recursive_doubling");
}

}  // namespace lockstep::algorithms
