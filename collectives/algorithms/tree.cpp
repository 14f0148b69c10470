#include "collectives/algorithms/tree.h"

#include <algorithm>

#include "collectives/algorithms/numbers.h"
#include "core/index.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

namespace {

int size_of(const Tree& tree) {
  return static_cast<int>(tree.parent.size());
}

}  // namespace

Tree make_tree(int num_vertices, const VertexMap& parent_of, const VertexMap& rank_of) {
  Tree tree{0, std::vector<int>(at(num_vertices), -1), std::vector<std::vector<int>>(at(num_vertices))};
  for (int v = 0; v < num_vertices; ++v) {
    const int parent = parent_of(v);
    if (parent < 0) {
      tree.root = rank_of(v);
    } else {
      tree.parent[at(rank_of(v))] = rank_of(parent);
      tree.children[at(rank_of(parent))].push_back(rank_of(v));
    }
  }
  return tree;
}

Tree make_rooted_tree(int num_ranks, int root, const VertexMap& parent_of) {
  return make_tree(
      num_ranks, [&](int v) { return v == 0 ? -1 : parent_of(v); }, [&](int v) { return (root + v) % num_ranks; });
}

int chain_parent(int v) {
  return v - 1;
}
int star_parent(int /*v*/) {
  return 0;
}
int heap_parent(int v) {
  return (v - 1) / 2;
}

int knomial_parent(int v, int radix) {
  int place = 1;
  while (v / place % radix == 0) place *= radix;
  return v - v / place % radix * place;
}

int in_order_parent(int y, int n) {
  const int bit = lowest_bit(y);
  const int inward = (y ^ bit) | (2 * bit);  // ..01 -> ..10 and ..11 -> ..10, above the trailing zeros
  return inward <= n ? inward : y ^ bit;
}

void tree_broadcast(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  for (int r = 0; r < size_of(tree); ++r) {
    const bool is_root = r == tree.root;
    const auto& children = tree.children[at(r)];
    for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
      if (!is_root) builder.recv(r, tree.parent[at(r)], plan::output(c), lane);
      const Slice src = is_root ? plan::input(c) : plan::output(c);
      std::for_each(children.rbegin(), children.rend(), [&](int child) { builder.send(r, child, src, lane); });
    }
    if (is_root)
      builder.copy(r, plan::output(chunks.first, chunks.count), plan::input(chunks.first, chunks.count), lane);
  }
}

namespace {

// A partial sum, and the step of its rank that produced it (-1: it is the rank's own input).
struct Sum {
  Slice slice;
  int step = -1;
};

// Adds the children's sums to the rank's own input, into `into`.
Sum add_children(PlanBuilder& builder, const Tree& tree, int rank, Slice own, Slice into, int lane) {
  Sum sum{own};
  for (const int child : tree.children[at(rank)]) {
    sum.step = builder.recv_reduce(rank, child, into, sum.slice, lane);
    sum.slice = into;
  }
  return sum;
}

bool has_inner_vertex_below_root(const Tree& tree) {
  for (int r = 0; r < size_of(tree); ++r) {
    if (r != tree.root && !tree.children[at(r)].empty()) return true;
  }
  return false;
}

}  // namespace

void tree_reduce(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  const int num_slots = has_inner_vertex_below_root(tree) ? std::min(chunks.count, 2) : 0;
  const int slots = builder.take_scratch(num_slots);
  for (int r = 0; r < size_of(tree); ++r) {
    for (int k = 0; k < chunks.count; ++k) {
      const Slice own = plan::input(chunks.first + k);
      const Slice into = r == tree.root ? plan::output(chunks.first + k) : plan::scratch(slots + k % 2);
      const Sum sum = add_children(builder, tree, r, own, into, lane);
      if (r != tree.root) builder.send(r, tree.parent[at(r)], sum.slice, lane);
    }
  }
}

// Two lanes, so that sums keep moving up while results come down. A result that is written to a chunk of output
// overwrites the partial sum that was sent up from there: `after` states the order, though the data dependences imply
// it.
void tree_all_reduce(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  const int down = lane + 1;
  for (int r = 0; r < size_of(tree); ++r) {
    const int parent = tree.parent[at(r)];
    const auto& children = tree.children[at(r)];
    for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
      const Sum sum = add_children(builder, tree, r, plan::input(c), plan::output(c), lane);
      plan::After summed{lane, sum.step};
      if (r != tree.root) {
        summed.step = builder.send(r, parent, sum.slice, lane);
        builder.recv(r, parent, plan::output(c), down, summed);
      }
      std::for_each(children.rbegin(), children.rend(),
                    [&](int child) { builder.send(r, child, plan::output(c), down, summed); });
    }
  }
}

}  // namespace lockstep::algorithms
