#include "testing/plans/plans.h"

#include <utility>

#include <fmt/format.h>

#include "collectives/plan/plan.h"
#include "collectives/plan/text.h"
#include "core/index.h"

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

namespace {

class Mutator {
 public:
  Mutator(const Plan& plan, const std::function<void(const Mutant&)>& visit) : plan_(plan), visit_(visit) {}

  void mutate_all() {
    const StepIds ids(plan_);
    for (int id = 0; id < ids.num_steps(); ++id) {
      where_ = ids.index(id);
      chunks();
      peers();
      operations();
      orders();
    }
  }

 private:
  static Step& step_in(Plan& plan, const StepIndex& where) { return lane_in(plan, where)[at(where.step)]; }
  static Lane& lane_in(Plan& plan, const StepIndex& where) { return plan.ranks[at(where.rank)].lanes[at(where.lane)]; }
  const Step& original() const { return step_at(plan_, where_); }

  template <class Edit>
  void visit(const char* what, Edit&& edit) {
    Mutant mutant{fmt::format("rank {} lane {} step {} ({}): {}", where_.rank, where_.lane, where_.step,
                              to_text(original()), what),
                  plan_};
    edit(mutant.plan);
    if (mutant.plan != plan_) visit_(mutant);
  }
  template <class Edit>
  void visit_step(const char* what, Edit&& edit) {
    visit(what, [&](Plan& plan) { edit(step_in(plan, where_)); });
  }

  void chunks() {
    for (const int by : {-1, 1}) {
      if (reads_src(original().op)) {
        visit_step("reads another chunk", [&](Step& step) { step.src.first += by; });
      }
      if (writes_dst(original().op)) {
        visit_step("writes another chunk", [&](Step& step) { step.dst.first += by; });
      }
      visit_step("another count", [&](Step& step) {
        if (reads_src(step.op)) step.src.count += by;
        if (writes_dst(step.op)) step.dst.count += by;
      });
    }
    for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
      if (reads_src(original().op)) visit_step("reads another buffer", [&](Step& step) { step.src.buffer = buffer; });
      if (writes_dst(original().op)) visit_step("writes another buffer", [&](Step& step) { step.dst.buffer = buffer; });
    }
  }

  void peers() {
    if (original().op != Op::send && !reads_peer(original().op)) return;
    for (int peer = 0; peer < plan_.num_ranks; ++peer) {
      if (peer != where_.rank) visit_step("another peer", [&](Step& step) { step.peer = peer; });
    }
  }

  void operations() {
    switch (original().op) {
      case Op::send:
        return;
      case Op::recv:
        return visit_step("recv_reduce for recv", [](Step& step) {
          step.op = Op::recv_reduce;
          step.src = step.dst;
        });
      case Op::recv_reduce:
        return visit_step("recv for recv_reduce", [](Step& step) {
          step.op = Op::recv;
          step.src = {};
        });
      case Op::copy:
        return visit_step("reduce for copy", [](Step& step) { step.op = Op::reduce; });
      case Op::reduce:
        return visit_step("copy for reduce", [](Step& step) { step.op = Op::copy; });
    }
  }

  void orders() {
    visit("dropped", [&](Plan& plan) { drop(plan); });
    for (std::size_t i = 0; i < original().after.size(); ++i) {
      visit_step("without its after", [i](Step& step) { step.after.erase(step.after.begin() + static_cast<int>(i)); });
    }
    if (at(where_.step) + 1 == plan_.ranks[at(where_.rank)].lanes[at(where_.lane)].size()) return;
    visit("swapped with the next", [&](Plan& plan) {
      Lane& lane = lane_in(plan, where_);
      std::swap(lane[at(where_.step)], lane[at(where_.step) + 1]);
    });
  }

  // Steps that waited for a later step of the lane still wait for it; those that waited for this one wait for the one
  // before.
  void drop(Plan& plan) {
    Lane& lane = lane_in(plan, where_);
    lane.erase(lane.begin() + where_.step);
    for (Lane& other : plan.ranks[at(where_.rank)].lanes) {
      for (Step& step : other) {
        for (After& after : step.after) after.step -= after.lane == where_.lane && after.step >= where_.step ? 1 : 0;
        std::erase_if(step.after, [](const After& after) { return after.step < 0; });
      }
    }
  }

  const Plan& plan_;
  const std::function<void(const Mutant&)>& visit_;
  StepIndex where_;
};

}  // namespace

void for_each_mutant(const Plan& plan, const std::function<void(const Mutant&)>& visit) {
  Mutator(plan, visit).mutate_all();
}

MutantTally tally_mutants(const Plan& plan, const CheckOptions& options, int orders, std::uint64_t seed) {
  MutantTally tally;
  for_each_mutant(plan, [&](const Mutant& mutant) {
    const bool accepted = check(mutant.plan, options).ok();
    std::string wrong;
    for (int i = 0; i < orders && wrong.empty(); ++i) {
      wrong = interpret_slow(mutant.plan, options, seed + static_cast<std::uint64_t>(i));
    }
    tally.mutants += 1;
    tally.rejected += accepted ? 0 : 1;
    tally.harmful += wrong.empty() ? 0 : 1;
    if (accepted && !wrong.empty()) tally.missed.push_back(mutant.what + ": " + wrong);
  });
  return tally;
}

}  // namespace lockstep::plan
