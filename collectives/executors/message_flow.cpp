#include "collectives/executors/message_flow.h"

#include <algorithm>

#include "collectives/executors/message_hazards.h"
#include "collectives/plan/locations.h"
#include "collectives/plan/messages.h"
#include "core/error.h"

namespace lockstep::executors {
namespace {

using plan::Op;
using plan::Step;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool is_local(const Step& step) { return step.op == Op::copy || step.op == Op::reduce; }

class FlowRun {
 public:
  FlowRun(const plan::Plan& plan, const plan::StepIds& ids, bool in_place)
      : plan_(plan),
        ids_(ids),
        messages_(match_messages(plan, ids)),
        next_(at(ids.num_steps())),
        waits_(at(ids.num_steps()), 0),
        issued_(at(ids.num_steps()), 0),
        done_(at(ids.num_steps()), 0),
        sends_(at(ids.num_lanes())),
        recvs_(at(ids.num_lanes())) {
    flow_.staged.assign(at(ids.num_steps()), 0);
    flow_.buffered.assign(at(ids.num_steps()), 0);
    for (int id = 0; id < ids.num_steps(); ++id) {
      if (step(id).op == Op::send) sends_[at(ids.lane_of(id))].ids.push_back(id);
      if (plan::reads_peer(step(id).op)) recvs_[at(ids.lane_of(id))].ids.push_back(id);
      flow_.staged[at(id)] = step(id).op == Op::recv_reduce;
    }
    const plan::Locations locations(plan, in_place);
    for (int rank = 0; rank < plan.num_ranks; ++rank) find_waits(rank, locations);
  }

  Flow run() {
    for (int id = 0; id < ids_.num_steps(); ++id) {
      if (is_local(step(id)) && waits_[at(id)] == 0) ready_.push_back(id);
    }
    run_ready();
    do {
      for (bool moved = true; moved;) {
        moved = false;
        for (int lane = 0; lane < ids_.num_lanes(); ++lane) moved |= advance(lane);
      }
    } while (unstick());
    const bool ended = std::all_of(done_.begin(), done_.end(), [](char done) { return done != 0; });
    LOCKSTEP_CHECK(ended, "plan " + plan_.algorithm + " does not end");
    return flow_;
  }

 private:
  // The messages of one direction of a lane, and how many are behind us.
  struct Queue {
    std::vector<int> ids;
    std::size_t next = 0;
    bool empty() const { return next == ids.size(); }
    int front() const { return ids[next]; }
  };

  const Step& step(int id) const { return step_at(plan_, ids_.place(id)); }
  int send_of(int recv) const { return messages_.list[at(messages_.of_step[at(recv)])].send; }

  void find_waits(int rank, const plan::Locations& locations) {
    Hazards hazards;
    for (int id : steps_in_order(plan_, ids_, rank)) {
      std::vector<int> before;
      const auto each_chunk = [&](const plan::Slice& slice, auto access) {
        for (int i = 0; i < slice.count; ++i) {
          const int location = locations.of(rank, slice, i);
          (hazards.*access)(id, location, location + 1, before);
        }
      };
      if (plan::reads_src(step(id).op)) each_chunk(step(id).src, &Hazards::read);
      if (plan::reads_dst(step(id).op)) each_chunk(step(id).dst, &Hazards::read);
      if (plan::writes_dst(step(id).op)) each_chunk(step(id).dst, &Hazards::write);
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (int earlier : before) next_[at(earlier)].push_back(id);
      waits_[at(id)] = static_cast<int>(before.size());
    }
  }

  void complete(int id) {
    if (done_[at(id)]) return;
    done_[at(id)] = 1;
    for (int later : next_[at(id)]) {
      if (--waits_[at(later)] == 0 && is_local(step(later))) ready_.push_back(later);
    }
    run_ready();
  }

  void run_ready() {
    while (!ready_.empty()) {
      const int id = ready_.back();
      ready_.pop_back();
      complete(id);
    }
  }

  bool advance(int lane) {
    bool moved = false;
    for (Queue& sends = sends_[at(lane)]; !sends.empty() && waits_[at(sends.front())] == 0; ++sends.next) {
      issued_[at(sends.front())] = 1;
      moved = true;
    }
    for (Queue& recvs = recvs_[at(lane)]; !recvs.empty() && receive(recvs.front(), moved); ++recvs.next) moved = true;
    return moved;
  }

  // Whether a receive ended; `moved` if at least the message left the sender.
  bool receive(int id, bool& moved) {
    const int send = send_of(id);
    const bool may_land = issued_[at(send)] && (flow_.staged[at(id)] || waits_[at(id)] == 0);
    if (may_land && !done_[at(send)]) {
      complete(send);
      moved = true;
    }
    if (!may_land || waits_[at(id)] != 0) return false;
    complete(id);
    return true;
  }

  // Puts in one copy that lets the plan go on; false if there is none.
  bool unstick() {
    for (const Queue& recvs : recvs_) {
      if (recvs.empty() || flow_.staged[at(recvs.front())] || !issued_[at(send_of(recvs.front()))]) continue;
      flow_.staged[at(recvs.front())] = 1;
      return true;
    }
    for (int id = 0; id < ids_.num_steps(); ++id) {
      if (!issued_[at(id)] || done_[at(id)] || next_[at(id)].empty()) continue;
      flow_.buffered[at(id)] = 1;
      complete(id);
      return true;
    }
    return false;
  }

  const plan::Plan& plan_;
  const plan::StepIds& ids_;
  plan::Messages messages_;
  std::vector<std::vector<int>> next_;  // [step id] steps that wait for it
  std::vector<int> waits_;              // [step id] steps that it still waits for
  std::vector<char> issued_;            // [step id] sends
  std::vector<char> done_;              // [step id]
  std::vector<Queue> sends_;            // [lane id]
  std::vector<Queue> recvs_;            // [lane id]
  std::vector<int> ready_;              // copies and reductions that nothing holds up
  Flow flow_;
};

}  // namespace

Flow find_flow(const plan::Plan& plan, const plan::StepIds& ids, bool in_place) {
  return FlowRun(plan, ids, in_place).run();
}

std::vector<int> steps_in_order(const plan::Plan& plan, const plan::StepIds& ids, int rank) {
  const auto& lanes = plan.ranks[at(rank)].lanes;
  std::vector<int> next(lanes.size(), 0);
  std::vector<int> order;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      while (at(next[l]) < lanes[l].size()) {
        const plan::After& after = lanes[l][at(next[l])].after;
        if (after.lane >= 0 && next[at(after.lane)] <= after.step) break;
        order.push_back(ids.id(rank, static_cast<int>(l), next[l]++));
        moved = true;
      }
    }
  }
  return order;
}

}  // namespace lockstep::executors
