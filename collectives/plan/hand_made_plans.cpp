#include "collectives/plan/hand_made_plans.h"

namespace lockstep::plan {

using collectives::Kind;

Plan ring_plan(int num_ranks, int lanes) {
  PlanBuilder plan(Kind::all_reduce, num_ranks, 0, num_ranks * lanes);
  for (int lane = 0; lane < lanes; ++lane) {
    const auto chunk = [&](int i) { return (i + 2 * num_ranks) % num_ranks + lane * num_ranks; };
    for (int r = 0; r < num_ranks; ++r) {
      const int next = (r + 1) % num_ranks;
      const int prev = (r + num_ranks - 1) % num_ranks;
      if (num_ranks == 1) plan.copy(r, output(chunk(0)), input(chunk(0)), lane);
      for (int s = 0; s < num_ranks - 1; ++s) {
        plan.send(r, next, s == 0 ? input(chunk(r)) : output(chunk(r - s)), lane);
        plan.recv_reduce(r, prev, output(chunk(r - s - 1)), input(chunk(r - s - 1)), lane);
      }
      for (int s = 0; s < num_ranks - 1; ++s) {
        plan.send(r, next, output(chunk(r + 1 - s)), lane);
        plan.recv(r, prev, output(chunk(r - s)), lane);
      }
    }
  }
  return plan.finish("ring");
}

Plan chain_plan(int num_ranks, int root, int chunks) {
  PlanBuilder plan(Kind::broadcast, num_ranks, root, chunks);
  for (int c = 0; c < chunks; ++c) {
    plan.copy(root, output(c), input(c));
    for (int hop = 0; hop + 1 < num_ranks; ++hop) {
      const int from = (root + hop) % num_ranks;
      plan.transfer(from, (from + 1) % num_ranks, hop == 0 ? input(c) : output(c), output(c));
    }
  }
  return plan.finish("chain");
}

Plan exchange_plan(int num_ranks) {
  PlanBuilder plan(Kind::all_reduce, num_ranks, 0, 1);
  int rounds = 0;
  while (1 << rounds < num_ranks) ++rounds;
  const int first = plan.take_scratch(rounds);
  for (int r = 0; r < num_ranks; ++r) {
    Slice sum = input(0);
    for (int k = 0; k < rounds; ++k) {
      const Slice next = k + 1 == rounds ? output(0) : scratch(first + k);
      plan.send(r, r ^ (1 << k), sum);
      plan.recv_reduce(r, r ^ (1 << k), next, sum);
      sum = next;
    }
    if (rounds == 0) plan.copy(r, output(0), input(0));
  }
  return plan.finish("exchange");
}

Plan halving_doubling_plan(int num_ranks) {
  PlanBuilder plan(Kind::all_reduce, num_ranks, 0, num_ranks);
  for (int r = 0; r < num_ranks; ++r) {
    plan.copy(r, output(0, num_ranks), input(0, num_ranks));
    for (int half = num_ranks / 2; half >= 1; half /= 2) {  // keeps the half that contains its own chunk
      const int peer = r ^ half;
      for (int c = 0; c < half; ++c) plan.send(r, peer, output(peer / half * half + c));
      for (int c = 0; c < half; ++c) {
        plan.recv_reduce(r, peer, output(r / half * half + c), output(r / half * half + c));
      }
    }
    for (int half = 1; half < num_ranks; half *= 2) {
      const int peer = r ^ half;
      for (int c = 0; c < half; ++c) plan.send(r, peer, output(r / half * half + c));
      for (int c = 0; c < half; ++c) plan.recv(r, peer, output(peer / half * half + c));
    }
  }
  return plan.finish("halving_doubling");
}

Plan two_lane_plan(int num_ranks) {
  PlanBuilder plan(Kind::all_reduce, num_ranks, 0, 1);
  const int slot = plan.take_scratch(1);
  for (int r = 0; r < num_ranks; ++r) {
    for (int by = 1; by < num_ranks; ++by) plan.send(r, (r + by) % num_ranks, input(0));
    plan.copy(r, output(0), input(0), 1);
    After added;
    for (int by = 1; by < num_ranks; ++by) {
      const int received = plan.recv(r, (r + num_ranks - by) % num_ranks, scratch(slot), 0, added);
      added = {1, plan.reduce(r, output(0), scratch(slot), 1, {0, received})};
    }
  }
  return plan.finish("two_lane");
}

Plan direct_all_to_all_plan(Kind kind, int num_ranks, int chunks_per_block) {
  PlanBuilder plan(kind, num_ranks, 0, chunks_per_block);
  const auto block = [&](int b) { return b * chunks_per_block; };
  for (int r = 0; r < num_ranks; ++r) {
    plan.copy(r, output(block(r), chunks_per_block), input(block(r), chunks_per_block));
    for (int by = 1; by < num_ranks; ++by) {
      const int to = (r + by) % num_ranks;
      plan.send(r, to, input(block(to), chunks_per_block));
    }
    for (int by = 1; by < num_ranks; ++by) {
      const int from = (r + num_ranks - by) % num_ranks;
      plan.recv(r, from, output(block(from), chunks_per_block));
    }
  }
  return plan.finish("direct");
}

}  // namespace lockstep::plan
