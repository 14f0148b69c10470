#include "collectives/plan/messages.h"

#include <algorithm>
#include <cstdint>

#include "collectives/plan/lane_run.h"
#include "core/error.h"

namespace lockstep::plan {
namespace {

struct End {
  std::uint64_t channel;
  int step_id;
};

std::uint64_t channel_key(const Plan& plan, int lanes, int from, int to, int lane) {
  const auto n = static_cast<std::uint64_t>(plan.num_ranks);
  return (static_cast<std::uint64_t>(from) * n + static_cast<std::uint64_t>(to)) * static_cast<std::uint64_t>(lanes) +
         static_cast<std::uint64_t>(lane);
}

// Sends, or receives, in the order of their channels and in program order within each.
std::vector<End> ends_of(const Plan& plan, const StepIds& ids, bool sends) {
  std::vector<End> ends;
  const int lanes = num_lanes(plan);
  for (int id = 0; id < ids.num_steps(); ++id) {
    const StepPlace& at = ids.place(id);
    const Step& step = step_at(plan, at);
    if (sends && step.op == Op::send) ends.push_back({channel_key(plan, lanes, at.rank, step.peer, at.lane), id});
    if (!sends && reads_peer(step.op)) ends.push_back({channel_key(plan, lanes, step.peer, at.rank, at.lane), id});
  }
  std::stable_sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.channel < b.channel; });
  return ends;
}

}  // namespace

Messages match_messages(const Plan& plan, const StepIds& ids) {
  const std::vector<End> sends = ends_of(plan, ids, true);
  const std::vector<End> recvs = ends_of(plan, ids, false);
  Messages messages;
  messages.of_step.assign(static_cast<std::size_t>(ids.num_steps()), -1);
  std::uint64_t channel = 0;
  int position = 0;
  for (std::size_t s = 0, r = 0; s < sends.size() || r < recvs.size();) {
    const bool has_send = s < sends.size() && (r == recvs.size() || sends[s].channel <= recvs[r].channel);
    const bool has_recv = r < recvs.size() && (s == sends.size() || recvs[r].channel <= sends[s].channel);
    const std::uint64_t here = has_send ? sends[s].channel : recvs[r].channel;
    position = here == channel && !messages.list.empty() ? position + 1 : 0;
    channel = here;
    const int index = static_cast<int>(messages.list.size());
    Message message{-1, -1, position};
    if (has_send) message.send = sends[s++].step_id;
    if (has_recv) message.recv = recvs[r++].step_id;
    if (has_send) messages.of_step[static_cast<std::size_t>(message.send)] = index;
    if (has_recv) messages.of_step[static_cast<std::size_t>(message.recv)] = index;
    messages.list.push_back(message);
  }
  return messages;
}

std::vector<int> dependence_order(const Plan& plan, const StepIds& ids, const Messages& messages) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<int> order;
  LaneRun lanes(ids, ids.num_steps());
  const auto awaited = [&](int id) {
    const Step& step = step_at(plan, ids.place(id));
    const int after = ids.id(ids.place(id).rank, step.after);
    if (after >= 0 && !lanes.done(after)) return after;
    const int send = reads_peer(step.op) ? messages.list[at(messages.of_step[at(id)])].send : -1;
    return send >= 0 && !lanes.done(send) ? send : -1;
  };
  lanes.run(awaited, [&order](int id) {
    order.push_back(id);
    return true;
  });
  LOCKSTEP_CHECK(order.size() == at(ids.num_steps()), "the plan was not checked: it waits for itself");
  return order;
}

}  // namespace lockstep::plan
