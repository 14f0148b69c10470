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

// The parameters that an update applies to: a bucket's, a stage's, or all of the rank's.
std::size_t parameters_of(const Task& update, std::size_t rank, const schedules::Step& step,
                          const std::vector<workload::StagePlan>& plans) {
  if (update.stage >= 0) {
    const workload::StagePlan& plan = plans[static_cast<std::size_t>(update.stage)];
    return update.part < 0 ? plan.parameters.size() : plan.buckets[static_cast<std::size_t>(update.part)].size();
  }
  std::size_t parameters = 0;
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    if (step.rank_of_stage[stage] == static_cast<std::int32_t>(rank)) parameters += plans[stage].parameters.size();
  }
  return parameters;
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
  for (std::size_t rank = 0; rank < step.of_rank.size(); ++rank) {
    for (Task& task : step.of_rank[rank].tasks) {
      if (task.lane == Lane::copy) continue;  // issued by a separate thread
      const bool receives = schedules::is_recv(task.op);
      if (task.comm != Comm::none || receives || schedules::is_send(task.op)) task.issue_ps = issue.collective_ps;
      task.host_waits = receives && !layout.overlap_p2p;
      // The update begins when the host has seen the norm, and takes as long as the slower of host and device.
      if (task.op == Op::optimizer && task.lane == Lane::compute) {
        const auto operators = static_cast<std::int64_t>(parameters_of(task, rank, step, plans));
        task.amount = std::max(task.amount, issue.kernel_ps * operators);
      }
    }
  }
}

std::int64_t list_ps(const Host& host, const workload::Layout& layout, const schedules::Group& group) {
  if (!layout.gather_lists || group.kind != schedules::GroupKind::data) return 0;
  return ps_of(kOperatorsOfListed * host.operator_us * static_cast<double>(group.size()));
}

}  // namespace lockstep::simulator
