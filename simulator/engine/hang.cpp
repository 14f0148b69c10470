#include "simulator/engine/hang.h"

#include "schedules/token.h"

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

}  // namespace lockstep::simulator
