#include "simulator/prices/host_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Op;
using schedules::Task;

std::int64_t ps_of(double us) {
  return std::llround(us * 1e6);
}

// What the optimizer's operators take on each rank.
std::vector<std::int64_t> optimizer_issue_ps(const schedules::Step& step, const std::vector<workload::StagePlan>& plans,
                                             std::int64_t each_ps) {
  std::vector<std::int64_t> ps(step.of_rank.size());
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    ps[static_cast<std::size_t>(step.rank_of_stage[stage])] +=
        each_ps * static_cast<std::int64_t>(plans[stage].parameters.size());
  }
  return ps;
}

}  // namespace

workload::IssueTimes issue_times_of(const Host& host, const workload::Layout& layout) {
  if (layout.graphs) return {ps_of(host.graph_us), ps_of(host.graph_us)};
  return {ps_of(kOperatorsOfKernel * host.operator_us), ps_of(kOperatorsOfExchange * host.operator_us)};
}

void add_host(schedules::Step& step, const workload::Layout& layout, const std::vector<workload::StagePlan>& plans,
              const Host& host) {
  if (host.operator_us == 0) return;
  const workload::IssueTimes issue = issue_times_of(host, layout);
  const std::vector<std::int64_t> optimizer_ps = optimizer_issue_ps(step, plans, issue.kernel_ps);
  for (std::size_t rank = 0; rank < step.of_rank.size(); ++rank) {
    for (Task& task : step.of_rank[rank].tasks) {
      const bool receives = schedules::is_recv(task.op);
      if (task.comm != Comm::none || receives || schedules::is_send(task.op)) task.issue_ps = issue.collective_ps;
      task.host_waits = receives && !layout.overlap_p2p;
      // The update begins when the host has seen the norm, and takes as long as the slower one of host and device.
      if (task.op == Op::optimizer && task.lane == Lane::compute) {
        task.amount = std::max(task.amount, optimizer_ps[rank]);
      }
    }
  }
}

std::int64_t list_ps(const Host& host, const workload::Layout& layout, const schedules::Group& group) {
  if (!layout.gather_lists || group.kind != schedules::GroupKind::data) return 0;
  return ps_of(kOperatorsOfListed * host.operator_us * static_cast<double>(group.size()));
}

}  // namespace lockstep::simulator
