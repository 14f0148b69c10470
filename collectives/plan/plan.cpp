#include "collectives/plan/plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "collectives/plan/messages.h"
#include "core/error.h"

namespace lockstep::plan {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::send:
      return "send";
    case Op::recv:
      return "recv";
    case Op::recv_reduce:
      return "recv_reduce";
    case Op::copy:
      return "copy";
    case Op::reduce:
      return "reduce";
  }
  return "?";
}

std::string_view name_of(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
  }
  return "?";
}

int input_chunks(const Plan& plan, int rank) {
  return collectives::input_blocks(plan.kind, plan.num_ranks, plan.root, rank) * plan.chunks_per_block;
}

int output_chunks(const Plan& plan, int rank) {
  return collectives::output_blocks(plan.kind, plan.num_ranks, plan.root, rank) * plan.chunks_per_block;
}

int num_lanes(const Plan& plan) {
  std::size_t most = 0;
  for (const RankSteps& rank : plan.ranks) most = std::max(most, rank.lanes.size());
  return static_cast<int>(most);
}

PlanBuilder::PlanBuilder(collectives::Kind kind, int num_ranks, int root, int chunks_per_block) {
  LOCKSTEP_CHECK(num_ranks >= 1 && chunks_per_block >= 1 && root >= 0 && root < num_ranks, "bad plan shape");
  plan_.kind = kind;
  plan_.num_ranks = num_ranks;
  plan_.root = root;
  plan_.chunks_per_block = chunks_per_block;
  plan_.ranks.resize(static_cast<std::size_t>(num_ranks));
}

namespace {

std::vector<After> list_of(After after) {
  return after.lane < 0 ? std::vector<After>{} : std::vector<After>{after};
}

}  // namespace

int PlanBuilder::append(int rank, int lane, Step step) {
  auto& lanes = plan_.ranks.at(static_cast<std::size_t>(rank)).lanes;
  if (lanes.size() <= static_cast<std::size_t>(lane)) lanes.resize(static_cast<std::size_t>(lane) + 1);
  Lane& steps = lanes[static_cast<std::size_t>(lane)];
  steps.push_back(std::move(step));
  return static_cast<int>(steps.size()) - 1;
}

int PlanBuilder::send(int rank, int peer, Slice src, int lane, After after) {
  return append(rank, lane, {Op::send, peer, src, {}, list_of(after)});
}

int PlanBuilder::recv(int rank, int peer, Slice dst, int lane, After after) {
  return append(rank, lane, {Op::recv, peer, {}, dst, list_of(after)});
}

int PlanBuilder::recv_reduce(int rank, int peer, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::recv_reduce, peer, src, dst, list_of(after)});
}

int PlanBuilder::copy(int rank, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::copy, -1, src, dst, list_of(after)});
}

int PlanBuilder::reduce(int rank, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::reduce, -1, src, dst, list_of(after)});
}

void PlanBuilder::transfer(int from, int to, Slice src, Slice dst, int lane) {
  send(from, to, src, lane);
  recv(to, from, dst, lane);
}

int PlanBuilder::take_scratch(int chunks) {
  return std::exchange(plan_.scratch_chunks, plan_.scratch_chunks + chunks);
}

Plan PlanBuilder::finish(std::string algorithm) {
  plan_.algorithm = std::move(algorithm);
  return std::move(plan_);
}

StepIds::StepIds(const Plan& plan) {
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    const auto& lanes = plan.ranks[at(rank)].lanes;
    for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
      for (int step = 0; step < static_cast<int>(lanes[at(lane)].size()); ++step)
        indices_.push_back({rank, lane, step});
      first_step_.push_back(static_cast<int>(indices_.size()));
    }
    first_lane_.push_back(num_lanes());
  }
}

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
    const StepIndex& at = ids.index(id);
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
  std::vector<int> order;
  LaneRun lanes(ids, ids.num_steps());
  const auto awaited = [&](int id) {
    const Step& step = step_at(plan, ids.index(id));
    if (const int earlier = lanes.awaited_by(step, ids.index(id).rank); earlier >= 0) return earlier;
    const int send = reads_peer(step.op) ? messages.send_of(id) : -1;
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
