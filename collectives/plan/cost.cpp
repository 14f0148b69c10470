#include "collectives/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {

std::int64_t chunk_elems(const Plan& plan, const collectives::Operation& operation, const Moved& moved) {
  const int block = moved.chunk / plan.chunks_per_block;
  const std::int64_t count = operation.matrix ? operation.matrix->at(moved.origin, block) : operation.count;
  return chunk_size(count, plan.chunks_per_block, moved.chunk % plan.chunks_per_block);
}

std::vector<std::int64_t> step_bytes(const Plan& plan, const Contents& contents,
                                     const collectives::Operation& operation) {
  const bool by_pair = plan.kind == collectives::Kind::all_to_all_v;
  LOCKSTEP_CHECK(operation.kind == plan.kind && by_pair == (operation.matrix != nullptr),
                 "the plan is for another collective, or all_to_all_v came without its matrix");
  const auto element_bytes = static_cast<std::int64_t>(core::size_of(operation.dtype));
  std::vector<std::int64_t> bytes;
  for (int id = 0; id < contents.ids().num_steps(); ++id) {
    std::int64_t elems = 0;
    const int chunks = chunks_of(step_at(plan, contents.ids().index(id)));
    for (int i = 0; i < chunks; ++i) elems += chunk_elems(plan, operation, contents.at(id, i));
    bytes.push_back(elems * element_bytes);
  }
  return bytes;
}

namespace {

// A step's depth is the number of messages on the longest chain that ends with it.
int longest_chain(const Plan& plan, const StepIds& ids) {
  const Messages messages = match_messages(plan, ids);
  std::vector<int> depth(at(ids.num_steps()), 0);
  int longest = 0;
  for (const int id : dependence_order(plan, ids, messages)) {
    const StepIndex& where = ids.index(id);
    const Step& step = step_at(plan, where);
    if (where.step > 0) depth[at(id)] = depth[at(id - 1)];
    for (const After& after : step.after) depth[at(id)] = std::max(depth[at(id)], depth[at(ids.id(where.rank, after))]);
    if (reads_peer(step.op)) {
      depth[at(id)] = std::max(depth[at(id)], depth[at(messages.send_of(id))] + 1);
    }
    longest = std::max(longest, depth[at(id)]);
  }
  return longest;
}

void count_step(const Step& step, std::int64_t bytes, RankCounts& rank) {
  const int chunks = chunks_of(step);
  if (step.op == Op::send) {
    rank.messages_sent += 1;
    rank.chunks_sent += chunks;
    rank.bytes_sent += bytes;
  }
  if (reads_peer(step.op)) {
    rank.messages_received += 1;
    rank.chunks_received += chunks;
    rank.bytes_received += bytes;
  }
  if (step.op == Op::recv_reduce || step.op == Op::reduce) rank.bytes_reduced += bytes;
  if (step.op == Op::copy) rank.bytes_copied += bytes;
}

}  // namespace

RankCounts Counts::busiest() const {
  RankCounts most;
  for (const RankCounts& rank : ranks) {
    for (const auto field : {&RankCounts::messages_sent, &RankCounts::messages_received, &RankCounts::chunks_sent,
                             &RankCounts::chunks_received, &RankCounts::bytes_sent, &RankCounts::bytes_received,
                             &RankCounts::bytes_reduced, &RankCounts::bytes_copied}) {
      most.*field = std::max(most.*field, rank.*field);
    }
  }
  return most;
}

Counts count(const Plan& plan, const Contents& contents, const collectives::Operation& operation) {
  const StepIds& ids = contents.ids();
  const std::vector<std::int64_t> bytes = step_bytes(plan, contents, operation);
  Counts counts;
  counts.steps = longest_chain(plan, ids);
  counts.rounds = static_cast<int>(std::lround(predict(plan, contents, operation, {.alpha_us = 1}).time_us));
  counts.ranks.resize(at(plan.num_ranks));
  std::map<std::pair<int, int>, LinkCounts> links;
  for (int id = 0; id < ids.num_steps(); ++id) {
    const int rank = ids.index(id).rank;
    const Step& step = step_at(plan, ids.index(id));
    count_step(step, bytes[at(id)], counts.ranks[at(rank)]);
    if (step.op != Op::send) continue;
    LinkCounts& link = links[{rank, step.peer}];
    link = {rank, step.peer, link.messages + 1, link.chunks + chunks_of(step), link.bytes + bytes[at(id)]};
  }
  for (const auto& [ends, link] : links) counts.links.push_back(link);
  return counts;
}

namespace {

// A message in line at its sender's port: the first of its lane.
struct InLine {
  double since_us;
  int sent;  // messages that its lane has sent before
  int lane;
  int rank;  // sender
  int message;
  friend bool operator<(const InLine& a, const InLine& b) {
    return std::tie(a.since_us, a.sent, a.lane, a.rank) < std::tie(b.since_us, b.sent, b.lane, b.rank);
  }
};

// A rank's port and core.
struct Station {
  bool sending = false;
  bool receiving = false;
  std::set<InLine> outgoing;  // at most one per lane
  std::set<InLine> incoming;  // from all ranks to this one
  double core_free_us = 0;
};

struct PortEvent {
  double time_us;
  std::int64_t order;  // order of creation, which decides at equal times, so that results do not depend on the queue
  bool is_arrival;
  int id;  // message index, or step id
  friend bool operator>(const PortEvent& a, const PortEvent& b) {
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
        posted_(at(ids.num_lanes())),
        sent_(at(ids.num_lanes()), 0),
        arrived_(messages_.list.size(), 0),
        lanes_(ids, ids.num_steps() + static_cast<int>(messages_.list.size())) {
    prediction_.spans.resize(at(ids.num_steps()));
  }

  Prediction run() {
    while (true) {
      lanes_.run([this](int id) { return awaited(id); }, [this](int id) { return begin(id); });
      const bool all_known = events_.empty() || events_.top().time_us > now_us_;
      if (all_known) give_out_ports();
      if (events_.empty()) break;
      take_event();
    }
    for (int lane = 0; lane < ids_.num_lanes(); ++lane) {
      LOCKSTEP_CHECK(lanes_.stands_at(lane) < 0, "the plan was not checked");
    }
    prediction_.time_us = now_us_;
    return std::move(prediction_);
  }

 private:
  const Step& step_of(int id) const { return step_at(plan_, ids_.index(id)); }
  const StepIndex& sender_of(int message) const { return ids_.index(messages_.list[at(message)].send); }
  const StepIndex& receiver_of(int message) const { return ids_.index(messages_.list[at(message)].recv); }

  void take_event() {
    const PortEvent event = events_.top();
    events_.pop();
    now_us_ = event.time_us;
    event.is_arrival ? arrive(event.id) : lanes_.finish(event.id);
  }

  // A step, or a message's arrival: num_steps + message.
  int awaited(int id) const {
    if (const int earlier = lanes_.awaited_by(step_of(id), ids_.index(id).rank); earlier >= 0) return earlier;
    const int message = messages_.of_step[at(id)];
    if (reads_peer(step_of(id).op) && !arrived_[at(message)]) return ids_.num_steps() + message;
    return -1;
  }

  // Returns whether it is done at once.
  bool begin(int id) {
    const Op op = step_of(id).op;
    if (op == Op::send) post(messages_.of_step[at(id)]);
    if (op == Op::send || op == Op::recv) {
      if (op == Op::recv) prediction_.spans[at(id)] = {now_us_, now_us_};
      return true;
    }
    Station& here = stations_[at(ids_.index(id).rank)];
    const double per_byte = op == Op::copy ? model_.copy_us_per_byte : model_.gamma_us_per_byte;
    const double begin_us = std::max(now_us_, here.core_free_us);
    here.core_free_us = begin_us + per_byte * static_cast<double>(bytes_[at(id)]);
    prediction_.spans[at(id)] = {begin_us, here.core_free_us};
    events_.push({here.core_free_us, num_events_++, false, id});
    return false;
  }

  void post(int message) {
    const int lane = ids_.lane_of(messages_.list[at(message)].send);
    posted_[at(lane)].push_back(message);
    if (posted_[at(lane)].size() == 1) get_in_line(lane);
  }

  void get_in_line(int lane) {
    const int message = posted_[at(lane)].front();
    const StepIndex& from = sender_of(message);
    const InLine place{now_us_, sent_[at(lane)], from.lane, from.rank, message};
    stations_[at(from.rank)].outgoing.insert(place);
    stations_[at(receiver_of(message).rank)].incoming.insert(place);
    changed_.insert(from.rank);
  }

  // Called when all events of this time are known. The first in line go first, if both their ports are free.
  void give_out_ports() {
    std::set<InLine> candidates;
    for (const int rank : changed_) {
      const Station& here = stations_[at(rank)];
      if (!here.sending) candidates.insert(here.outgoing.begin(), here.outgoing.end());
      if (!here.receiving) candidates.insert(here.incoming.begin(), here.incoming.end());
    }
    changed_.clear();
    for (const InLine& place : candidates) {
      Station& sender = stations_[at(place.rank)];
      Station& receiver = stations_[at(receiver_of(place.message).rank)];
      if (sender.sending || receiver.receiving) continue;
      sender.outgoing.erase(place);
      receiver.incoming.erase(place);
      sender.sending = receiver.receiving = true;
      transmit(place.message);
    }
  }

  void transmit(int message) {
    const int send = messages_.list[at(message)].send;
    const double end_us = now_us_ + model_.alpha_us + model_.beta_us_per_byte * static_cast<double>(bytes_[at(send)]);
    prediction_.spans[at(send)] = {now_us_, end_us};
    events_.push({end_us, num_events_++, true, message});
  }

  void arrive(int message) {
    const int from = sender_of(message).rank;
    const int to = receiver_of(message).rank;
    stations_[at(from)].sending = stations_[at(to)].receiving = false;
    changed_.insert({from, to});
    const int lane = ids_.lane_of(messages_.list[at(message)].send);
    ++sent_[at(lane)];
    posted_[at(lane)].pop_front();
    if (!posted_[at(lane)].empty()) get_in_line(lane);
    arrived_[at(message)] = 1;
    lanes_.happen(ids_.num_steps() + message);
  }

  const Plan& plan_;
  const StepIds& ids_;
  Messages messages_;
  std::vector<std::int64_t> bytes_;  // [step id]
  const CostModel& model_;
  double now_us_ = 0;
  std::int64_t num_events_ = 0;
  std::priority_queue<PortEvent, std::vector<PortEvent>, std::greater<>> events_;
  std::vector<Station> stations_;        // [rank]
  std::set<int> changed_;                // ranks with a port or a message in line that is new since the last call
  std::vector<std::deque<int>> posted_;  // [lane id] messages that have not arrived
  std::vector<int> sent_;                // [lane id] messages that have been sent
  std::vector<char> arrived_;            // [message]
  LaneRun lanes_;
  Prediction prediction_;
};

}  // namespace

Prediction predict(const Plan& plan, const Contents& contents, const collectives::Operation& operation,
                   const CostModel& model) {
  return Simulation(plan, contents.ids(), step_bytes(plan, contents, operation), model).run();
}

}  // namespace lockstep::plan
