// A rank's tasks as the engine wants them: lane by lane, and edges as "so many of that lane are done".
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::simulator {

enum class TaskKind : std::uint8_t { kernel, send, receive, collective };
TaskKind kind_of(const schedules::Task& task);

struct LanePlace {
  std::uint32_t lane : 4;
  std::uint32_t count : 28;  // tasks of the lane that have to be done
};
static_assert(schedules::kNumLanes <= 16);

struct LaneTask {
  std::int64_t amount = 0;
  std::int32_t peer = -1;
  std::int32_t tag = -1;
  std::uint32_t index = 0;  // in RankStep::tasks
  std::uint32_t first_after = 0;
  std::uint16_t num_after = 0;
  TaskKind kind = TaskKind::kernel;
  schedules::Comm comm = schedules::Comm::none;
};

// The tasks that the host issues one after the other, without a wait for the device between them.
struct IssueRun {
  std::uint32_t end = 0;       // the first task of RankStep::tasks that is not one of them
  std::uint32_t num_core = 0;  // of all tasks before `end`, those that the host waits for before it goes on
};
// The host waits for kernels, messages and the collectives between kernels; gathers and reductions beside them go on.
bool is_core(schedules::Lane lane);

struct RankProgram {
  std::vector<LaneTask> tasks;                                     // lane after lane
  std::array<std::uint32_t, schedules::kNumLanes + 1> first = {};  // of each lane in `tasks`, and the end
  std::vector<LanePlace> after;
  std::uint32_t num_receives = 0;
  // For each task in the order of RankStep::tasks, the host's time for it and all before it. Nothing: the host is no
  // limit.
  std::vector<std::int64_t> issued_ps;
  std::vector<IssueRun> runs;
};

RankProgram compile(const schedules::RankStep& rank);

}  // namespace lockstep::simulator
