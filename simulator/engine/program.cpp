#include "simulator/engine/program.h"

#include <algorithm>

#include "schedules/text.h"

namespace lockstep::simulator {

void add_waiter(std::string& text, std::int32_t rank, const schedules::Task& task) {
  constexpr std::size_t kLongest = 600;
  if (text.size() > kLongest) {
    if (!text.ends_with("...")) text += "; ...";
    return;
  }
  if (!text.empty()) text += "; ";
  text += "rank " + std::to_string(rank) + ", lane " + std::string(name_of(task.lane)) + ", at " +
          schedules::token_of({task.op, task.stage, task.microbatch});
  if (schedules::is_recv(task.op)) text += " from rank " + std::to_string(task.peer);
  if (task.comm != schedules::Comm::none) text += " with group " + std::to_string(task.peer);
}

namespace {

std::size_t lane_of(const schedules::Task& task) {
  return static_cast<std::size_t>(task.lane);
}

void add_host(RankProgram& program, const std::vector<schedules::Task>& tasks) {
  const auto takes_time = [](const schedules::Task& task) { return task.issue_ps > 0; };
  if (std::none_of(tasks.begin(), tasks.end(), takes_time)) return;
  std::int64_t sum = 0;
  std::uint32_t num_core = 0;
  for (const schedules::Task& task : tasks) {
    program.issued_ps.push_back(sum += task.issue_ps);
    num_core += is_core(task.lane) ? 1 : 0;
    if (task.host_waits) program.runs.push_back({static_cast<std::uint32_t>(program.issued_ps.size()), num_core});
  }
  program.runs.push_back({static_cast<std::uint32_t>(tasks.size()), num_core});
}

}  // namespace

bool is_core(schedules::Lane lane) {
  using schedules::Lane;
  return lane == Lane::compute || lane == Lane::send || lane == Lane::receive || lane == Lane::tensor;
}

TaskKind kind_of(const schedules::Task& task) {
  if (schedules::is_send(task.op)) return TaskKind::send;
  if (schedules::is_recv(task.op)) return TaskKind::receive;
  return task.comm == schedules::Comm::none ? TaskKind::kernel : TaskKind::collective;
}

RankProgram compile(const schedules::RankStep& rank) {
  RankProgram program;
  std::array<std::uint32_t, schedules::kNumLanes> next = {};  // next index within each lane
  std::vector<std::uint32_t> place(rank.tasks.size());        // index of each task within its lane
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) place[i] = next[lane_of(rank.tasks[i])]++;
  for (std::size_t lane = 0; lane < next.size(); ++lane) program.first[lane + 1] = program.first[lane] + next[lane];

  program.tasks.resize(rank.tasks.size());
  program.after.reserve(rank.after.size());
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const schedules::Task& task = rank.tasks[i];
    const auto first_after = static_cast<std::uint32_t>(program.after.size());
    for (const std::uint32_t earlier : rank.after_of(task)) {
      const std::size_t lane = lane_of(rank.tasks[earlier]);
      if (lane == lane_of(task)) continue;  // implied by the lane's order
      program.after.push_back({static_cast<std::uint32_t>(lane) & 15U, (place[earlier] + 1) & 0x0fffffffU});
    }
    const TaskKind kind = kind_of(task);
    if (kind == TaskKind::receive) {
      program.num_receives = std::max(program.num_receives, static_cast<std::uint32_t>(task.tag) + 1);
    }
    program.tasks[program.first[lane_of(task)] + place[i]] = {
        .amount = task.amount,
        .peer = task.peer,
        .tag = task.tag,
        .index = static_cast<std::uint32_t>(i),
        .first_after = first_after,
        .num_after = static_cast<std::uint16_t>(program.after.size() - first_after),
        .kind = kind,
        .comm = task.comm};
  }
  add_host(program, rank.tasks);
  return program;
}

}  // namespace lockstep::simulator
