// A rank's tasks in the engine's form: lane by lane, with edges as "this many tasks of that lane are done".
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
  std::uint32_t count : 28;  // number of the lane's tasks that have to be done
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

// Consecutive tasks that the host issues without waiting for the device between them.
struct IssueRun {
  std::uint32_t end = 0;       // index in RankStep::tasks behind the last of them
  std::uint32_t num_core = 0;  // tasks before `end` that the host waits for before it continues
};
// True for lanes that the host waits for: kernels, messages and collectives between kernels, but not overlapped gathers
// and reductions.
bool is_core(schedules::Lane lane);

struct RankProgram {
  std::vector<LaneTask> tasks;                                     // sorted by lane
  std::array<std::uint32_t, schedules::kNumLanes + 1> first = {};  // first index of each lane in `tasks`, and the end
  std::vector<LanePlace> after;
  std::uint32_t num_receives = 0;
  // Host time to issue each task of RankStep::tasks and all before it; empty if the host is no limit.
  std::vector<std::int64_t> issued_ps;
  std::vector<IssueRun> runs;
};

RankProgram compile(const schedules::RankStep& rank);

}  // namespace lockstep::simulator
