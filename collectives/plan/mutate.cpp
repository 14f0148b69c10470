#include "collectives/plan/mutate.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/plan/interpret_slow.h"
#include "collectives/plan/step_ids.h"
#include "collectives/plan/text.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

class Mutator {
 public:
  Mutator(const Plan& plan, const std::function<void(const Mutant&)>& visit) : plan_(plan), visit_(visit) {}

  void mutate_all() {
    const StepIds ids(plan_);
    for (int id = 0; id < ids.num_steps(); ++id) {
      where_ = ids.place(id);
      chunks();
      peers();
      operations();
      orders();
    }
  }

 private:
  static Step& step_in(Plan& plan, const StepPlace& where) { return lane_in(plan, where)[at(where.step)]; }
  static Lane& lane_in(Plan& plan, const StepPlace& where) { return plan.ranks[at(where.rank)].lanes[at(where.lane)]; }
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
    if (original().after.lane >= 0) visit_step("without its after", [](Step& step) { step.after = {}; });
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
        if (step.after.lane != where_.lane || step.after.step < where_.step) continue;
        if (--step.after.step < 0) step.after = {};
      }
    }
  }

  const Plan& plan_;
  const std::function<void(const Mutant&)>& visit_;
  StepPlace where_;
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
