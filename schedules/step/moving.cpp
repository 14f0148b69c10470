#include "schedules/step/moving.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::schedules {
namespace {

using Meeting = std::tuple<std::int32_t, Lane, std::int32_t>;          // group, lane, index of the collective
using Message = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // from, to, tag

// Calls visit(meeting, rank, task) for each collective of each rank.
template <class Visit>
void for_collectives(const Step& step, const Visit& visit) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::map<std::pair<std::int32_t, Lane>, std::int32_t> met;
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (task.comm != Comm::none) visit(Meeting{task.peer, task.lane, met[{task.peer, task.lane}]++}, r, i);
    }
  }
}

void begin_no_earlier(TaskSpan& span, std::int64_t start_ps) {
  span.start_ps = std::min(std::max(span.start_ps, start_ps), span.end_ps);
}

}  // namespace

StepTimeline when_bytes_move(const Step& step, StepTimeline timeline) {
  std::map<Meeting, std::int64_t> last;
  for_collectives(step, [&](const Meeting& meeting, std::size_t r, std::size_t i) {
    std::int64_t& start = last.try_emplace(meeting, timeline[r][i].start_ps).first->second;
    start = std::max(start, timeline[r][i].start_ps);
  });
  for_collectives(step, [&](const Meeting& meeting, std::size_t r, std::size_t i) {
    begin_no_earlier(timeline[r][i], last.at(meeting));
  });
  std::map<Message, std::int64_t> sent;
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (is_send(task.op)) sent[{static_cast<std::int32_t>(r), task.peer, task.tag}] = timeline[r][i].start_ps;
    }
  }
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (!is_recv(task.op)) continue;
      const auto send = sent.find({task.peer, static_cast<std::int32_t>(r), task.tag});
      if (send != sent.end()) begin_no_earlier(timeline[r][i], send->second);
    }
  }
  return timeline;
}

}  // namespace lockstep::schedules
