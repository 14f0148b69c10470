// The messages of a plan, and the order in which its steps can run.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {

// Visits the steps of a plan in an order that it allows: each lane runs as far as it can go. The checker, the cost
// model and dependence_order() are this with a meaning given to steps; testing/plans/interpret_slow.cpp, for tests,
// shares nothing with it.
//
// A lane waits for an event. Event s, below the number of steps, is that step s is done; the caller may have others.

class LaneRun {
 public:
  // `ids` outlives this object.
  LaneRun(const StepIds& ids, int num_events)
      : ids_(ids),
        done_(at(ids.num_steps()), 0),
        first_waiter_(at(num_events), kNobody),
        last_waiter_(at(num_events), kNobody),
        next_waiter_(at(ids.num_lanes()), kNobody) {
    for (int lane = 0; lane < ids.num_lanes(); ++lane) {
      next_.push_back(ids.lane_begin(lane));
      ready_.push_back(lane);
    }
  }

  // Runs until no lane can go on. awaited(id): the event that a step has to wait for now, or -1. execute(id): runs it;
  // returns whether it is done at once, else finish() completes it.
  template <typename Awaited, typename Execute>
  void run(const Awaited& awaited, const Execute& execute) {
    for (std::size_t i = 0; i < ready_.size(); ++i) run_lane(ready_[i], awaited, execute);
    ready_.clear();
  }
  void finish(int id) {
    ++next_[at(ids_.lane_of(id))];
    set_done(id);
  }
  // Releases the lanes that wait for the event.
  void happen(int event) {
    for (int lane = first_waiter_[at(event)]; lane != kNobody; lane = next_waiter_[at(lane)]) ready_.push_back(lane);
    first_waiter_[at(event)] = kNobody;
  }
  // Stops all lanes.
  void stop() { ready_.clear(); }

  bool done(int id) const { return done_[at(id)] != 0; }
  // The first step of a step's `after` that is not done; -1: none.
  int awaited_by(const Step& step, int rank) const {
    for (const After& after : step.after) {
      if (const int earlier = ids_.id(rank, after); !done(earlier)) return earlier;
    }
    return kNobody;
  }
  // The lane's next step; -1: it has ended.
  int stands_at(int lane) const { return next_[at(lane)] < ids_.lane_end(lane) ? next_[at(lane)] : -1; }

 private:
  static constexpr int kNobody = -1;

  template <typename Awaited, typename Execute>
  void run_lane(int lane, const Awaited& awaited, const Execute& execute) {
    for (int& id = next_[at(lane)]; id < ids_.lane_end(lane); ++id) {
      const int event = awaited(id);
      if (event >= 0) return wait(lane, event);
      if (!execute(id)) return wait(lane, id);
      set_done(id);
    }
  }

  void set_done(int id) {
    done_[at(id)] = 1;
    happen(id);
  }

  // Appends the lane to those that already wait for it.
  void wait(int lane, int event) {
    int& first = first_waiter_[at(event)];
    (first == kNobody ? first : next_waiter_[at(last_waiter_[at(event)])]) = lane;
    last_waiter_[at(event)] = lane;
    next_waiter_[at(lane)] = kNobody;
  }

  const StepIds& ids_;
  std::vector<char> done_;         // [step id]
  std::vector<int> next_;          // [lane id] step id
  std::vector<int> first_waiter_;  // [event] lane id, head of a list
  std::vector<int> last_waiter_;   // [event] lane id, tail of the list if it has a head
  std::vector<int> next_waiter_;   // [lane id] rest of that list
  std::vector<int> ready_;         // lane ids, first in, first out
};

// The match of sends and receives: a static property of a plan, because every (from, to, lane) is a first-in first-out
// channel and the steps of a lane run in order.

struct Message {
  int send = -1;     // step id; -1: the receive has no send
  int recv = -1;     // step id; -1: the send has no receive
  int position = 0;  // number of earlier messages in the same channel
};

struct Messages {
  std::vector<Message> list;  // channel by channel: the message before list[m] in its channel is list[m - 1]
  std::vector<int> of_step;   // [step id] index in list; -1 for steps that move nothing between ranks

  // The send of a receive, and the receive of a send.
  int send_of(int receive) const { return list[at(of_step[at(receive)])].send; }
  int receive_of(int send) const { return list[at(of_step[at(send)])].recv; }
};

// Peers must be ranks of the plan.
Messages match_messages(const Plan& plan, const StepIds& ids);

// All step ids, each after the step before it in its lane, its `after`, and the send that it receives. The plan must
// have passed the checker.
std::vector<int> dependence_order(const Plan& plan, const StepIds& ids, const Messages& messages);

}  // namespace lockstep::plan
