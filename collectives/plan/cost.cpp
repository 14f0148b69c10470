#include "collectives/plan/cost.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <queue>

#include "collectives/plan/messages.h"
#include "collectives/plan/sizes.h"
#include "core/error.h"

namespace lockstep::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// A rank's port and core.
struct Station {
  bool sending = false;
  bool receiving = false;
  bool head_waits = false;   // the first of `outgoing` stands in its receiver's `incoming`
  std::deque<int> outgoing;  // messages posted and not begun
  std::deque<int> incoming;  // messages that wait for this rank to be able to receive
  double core_free_us = 0;
};

struct Event {
  double time_us;
  std::int64_t order;  // of making: equal times are taken in it, so that results do not depend on the queue
  bool is_arrival;
  int id;  // message index, or step id
  friend bool operator>(const Event& a, const Event& b) {
    return a.time_us != b.time_us ? a.time_us > b.time_us : a.order > b.order;
  }
};

class Simulation {
 public:
  Simulation(const Plan& plan, const StepIds& ids, std::vector<std::int64_t> bytes, const CostModel& model)
      : plan_(plan),
        ids_(ids),
        messages_(match_messages(plan, ids)),
        bytes_(std::move(bytes)),
        model_(model),
        stations_(at(plan.num_ranks)),
        begun_(at(ids.num_steps()), 0),
        done_(at(ids.num_steps()), 0),
        arrived_(messages_.list.size(), 0),
        waiting_(at(ids.num_steps()) + messages_.list.size()) {
    prediction_.spans.resize(at(ids.num_steps()));
  }

  Prediction run() {
    for (int lane = 0; lane < ids_.num_lanes(); ++lane) next_.push_back(ids_.lane_begin(lane));
    for (int lane = 0; lane < ids_.num_lanes(); ++lane) run_lane(lane);
    for (run_ready_lanes(); !events_.empty(); run_ready_lanes()) {
      const Event event = events_.top();
      events_.pop();
      now_us_ = event.time_us;
      event.is_arrival ? arrive(event.id) : finish(event.id);
    }
    LOCKSTEP_CHECK(std::all_of(done_.begin(), done_.end(), [](char d) { return d != 0; }), "the plan was not checked");
    prediction_.time_us = now_us_;
    return std::move(prediction_);
  }

 private:
  const Step& step_of(int id) const { return step_at(plan_, ids_.place(id)); }
  Station& sender_of(int message) { return stations_[at(ids_.place(messages_.list[at(message)].send).rank)]; }
  Station& receiver_of(int message) { return stations_[at(ids_.place(messages_.list[at(message)].recv).rank)]; }

  // Goes on until the lane has to wait for an event: a step done, or a message arrived (num_steps + message).
  void run_lane(int lane) {
    while (next_[at(lane)] < ids_.lane_end(lane)) {
      const int id = next_[at(lane)];
      const int event = begun_[at(id)] ? id : awaited(id);
      if (event < 0) begin(id);
      if (event < 0 && done_[at(id)]) {
        ++next_[at(lane)];
        continue;
      }
      waiting_[at(event < 0 ? id : event)].push_back(lane);
      return;
    }
  }

  int awaited(int id) const {
    const int after = ids_.id(ids_.place(id).rank, step_of(id).after);
    if (after >= 0 && !done_[at(after)]) return after;
    const int message = messages_.of_step[at(id)];
    if (reads_peer(step_of(id).op) && !arrived_[at(message)]) return ids_.num_steps() + message;
    return -1;
  }

  void begin(int id) {
    begun_[at(id)] = 1;
    const Op op = step_of(id).op;
    if (op == Op::send) {
      Station& sender = sender_of(messages_.of_step[at(id)]);
      sender.outgoing.push_back(messages_.of_step[at(id)]);
      offer_next(sender);
    }
    if (op == Op::send || op == Op::recv) {
      if (op == Op::recv) prediction_.spans[at(id)] = {now_us_, now_us_};
      set_done(id);
      return;
    }
    Station& here = stations_[at(ids_.place(id).rank)];
    const double per_byte = op == Op::copy ? model_.copy_us_per_byte : model_.gamma_us_per_byte;
    const double begin_us = std::max(now_us_, here.core_free_us);
    here.core_free_us = begin_us + per_byte * static_cast<double>(bytes_[at(id)]);
    prediction_.spans[at(id)] = {begin_us, here.core_free_us};
    events_.push({here.core_free_us, num_events_++, false, id});
  }

  void set_done(int id) {
    done_[at(id)] = 1;
    wake(id);
  }

  void wake(int event) {
    ready_.insert(ready_.end(), waiting_[at(event)].begin(), waiting_[at(event)].end());
    waiting_[at(event)].clear();
  }

  void run_ready_lanes() {
    while (!ready_.empty()) {
      const int lane = ready_.front();
      ready_.pop_front();
      run_lane(lane);
    }
  }

  void finish(int id) {
    ++next_[at(ids_.lane_of(id))];
    set_done(id);
  }

  // Puts the sender's first message on the wire, or in line at its receiver.
  void offer_next(Station& sender) {
    if (sender.sending || sender.head_waits || sender.outgoing.empty()) return;
    const int message = sender.outgoing.front();
    if (receiver_of(message).receiving) {
      sender.head_waits = true;
      receiver_of(message).incoming.push_back(message);
    } else {
      transmit(message);
    }
  }

  void transmit(int message) {
    Station& sender = sender_of(message);
    sender.outgoing.pop_front();
    sender.head_waits = false;
    sender.sending = receiver_of(message).receiving = true;
    const int send = messages_.list[at(message)].send;
    const double end_us = now_us_ + model_.alpha_us + model_.beta_us_per_byte * static_cast<double>(bytes_[at(send)]);
    prediction_.spans[at(send)] = {now_us_, end_us};
    events_.push({end_us, num_events_++, true, message});
  }

  void arrive(int message) {
    Station& sender = sender_of(message);
    Station& receiver = receiver_of(message);
    sender.sending = receiver.receiving = false;
    if (!receiver.incoming.empty()) {
      const int next = receiver.incoming.front();
      receiver.incoming.pop_front();
      transmit(next);
    }
    offer_next(sender);
    arrived_[at(message)] = 1;
    wake(ids_.num_steps() + message);
  }

  const Plan& plan_;
  const StepIds& ids_;
  Messages messages_;
  std::vector<std::int64_t> bytes_;  // [step id]
  const CostModel& model_;
  double now_us_ = 0;
  std::int64_t num_events_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Station> stations_;          // [rank]
  std::vector<int> next_;                  // [lane id] step id
  std::vector<char> begun_;                // [step id]
  std::vector<char> done_;                 // [step id]
  std::vector<char> arrived_;              // [message]
  std::vector<std::vector<int>> waiting_;  // [event] lane ids
  std::deque<int> ready_;                  // lane ids whose event has happened
  Prediction prediction_;
};

}  // namespace

Prediction predict(const Plan& plan, const Contents& contents, const collectives::Operation& operation,
                   const CostModel& model) {
  return Simulation(plan, contents.ids(), step_bytes(plan, contents, operation), model).run();
}

}  // namespace lockstep::plan
