#include "collectives/plan/count.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "collectives/plan/cost.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/sizes.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

// A step's depth is the number of messages on the longest chain that ends with it.
int longest_chain(const Plan& plan, const StepIds& ids) {
  const Messages messages = match_messages(plan, ids);
  std::vector<int> depth(at(ids.num_steps()), 0);
  int longest = 0;
  for (const int id : dependence_order(plan, ids, messages)) {
    const StepPlace& where = ids.place(id);
    const Step& step = step_at(plan, where);
    const int after = ids.id(where.rank, step.after);
    if (where.step > 0) depth[at(id)] = depth[at(id - 1)];
    if (after >= 0) depth[at(id)] = std::max(depth[at(id)], depth[at(after)]);
    if (reads_peer(step.op)) {
      const int send = messages.list[at(messages.of_step[at(id)])].send;
      depth[at(id)] = std::max(depth[at(id)], depth[at(send)] + 1);
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
    const int rank = ids.place(id).rank;
    const Step& step = step_at(plan, ids.place(id));
    count_step(step, bytes[at(id)], counts.ranks[at(rank)]);
    if (step.op != Op::send) continue;
    LinkCounts& link = links[{rank, step.peer}];
    link = {rank, step.peer, link.messages + 1, link.chunks + chunks_of(step), link.bytes + bytes[at(id)]};
  }
  for (const auto& [ends, link] : links) counts.links.push_back(link);
  return counts;
}

}  // namespace lockstep::plan
