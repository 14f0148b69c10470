#include "schedules/interpreter/task_text.h"

#include "schedules/token.h"

namespace lockstep::schedules {

std::string text_of(const Task& task) {
  std::string text = token_of({task.op, task.stage, task.microbatch});
  if (is_recv(task.op)) text += " from rank " + std::to_string(task.peer);
  if (is_send(task.op)) text += " to rank " + std::to_string(task.peer);
  if (task.comm != Comm::none) text += " with group " + std::to_string(task.peer);
  return text;
}

}  // namespace lockstep::schedules
