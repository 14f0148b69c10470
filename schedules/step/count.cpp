#include "schedules/step/count.h"

namespace lockstep::schedules {

double wire_bytes(Comm comm, std::int64_t payload, std::int64_t ranks) {
  if (comm == Comm::none || ranks < 2) return 0;
  if (comm == Comm::shift) return static_cast<double>(payload);
  // For a broadcast or a reduction this is the mean over ranks, as one rank does not send.
  const double share = static_cast<double>(payload) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return comm == Comm::all_reduce ? 2 * share : share;
}

double beyond_bytes(Comm comm, std::int64_t payload, std::int64_t ranks, std::int64_t together) {
  if (comm == Comm::none || together >= ranks) return 0;
  const auto n = static_cast<double>(ranks);
  const auto k = static_cast<double>(together);
  const double bytes = static_cast<double>(payload);
  if (comm == Comm::all_to_all) return bytes * (n - k) / n;
  if (comm == Comm::shift) return bytes / k;  // in a ring, one member's message leaves the node
  const double pass = bytes * (n - k) / n / k;
  return comm == Comm::all_reduce ? 2 * pass : pass;
}

std::vector<SentBytes> count_sent(const Step& step) {
  std::vector<SentBytes> counts;
  for (const RankStep& rank : step.of_rank) {
    SentBytes sent;
    for (const Task& task : rank.tasks) {
      if (is_send(task.op)) sent.messages += static_cast<double>(task.amount);
      if (task.comm == Comm::none) continue;
      const Group& group = step.groups[static_cast<std::size_t>(task.peer)];
      sent.of_groups[static_cast<std::size_t>(group.kind)] += wire_bytes(task.comm, task.amount, group.size());
    }
    counts.push_back(sent);
  }
  return counts;
}

}  // namespace lockstep::schedules
