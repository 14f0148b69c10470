#include "schedules/step/check_step.h"

#include <map>
#include <utility>

#include "core/error.h"
#include "schedules/step/check_exchange.h"
#include "schedules/step/check_run.h"
#include "schedules/token.h"

namespace lockstep::schedules {
namespace {

void check_task(const Step& step, std::size_t r, std::uint32_t i, const Task& task, StepProblems& problems) {
  const std::size_t edges = step.of_rank[r].after.size();
  if (task.first_after > edges || task.num_after > edges - task.first_after) {
    return problems.add(r, i, "edges that are not there");
  }
  for (const std::uint32_t earlier : step.of_rank[r].after_of(task)) {
    if (earlier < i) continue;
    problems.add(r, i, "is after task " + std::to_string(earlier) + ", which is not issued before it");
  }
  if (task.amount < 0) problems.add(r, i, "a negative amount, " + std::to_string(task.amount));
  if (task.stage < -1 || task.stage >= step.num_stages()) problems.add(r, i, "no such stage");
  if (task.comm != Comm::none) {
    const bool there = task.peer >= 0 && static_cast<std::size_t>(task.peer) < step.groups.size();
    if (!there) problems.add(r, i, "no such group");
  } else if (is_send(task.op) || is_recv(task.op)) {
    if (task.peer < 0 || task.peer >= step.num_ranks()) problems.add(r, i, "no such rank as its peer");
  }
}

void check_groups(const Step& step, StepProblems& problems) {
  std::map<std::pair<std::int32_t, GroupKind>, std::size_t> group_of;
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    for (const std::int32_t rank : step.groups[g].ranks) {
      const std::string kind(name_of(step.groups[g].kind));
      if (rank < 0 || rank >= step.num_ranks()) {
        problems.add(0, UINT32_MAX, "group " + std::to_string(g) + " has a rank " + std::to_string(rank));
      } else if (!group_of.try_emplace({rank, step.groups[g].kind}, g).second) {
        problems.add(static_cast<std::size_t>(rank), UINT32_MAX, "is in two groups of kind " + kind);
      }
    }
  }
}

using StagePart = std::pair<std::int32_t, std::int32_t>;

void check_units(const RankStep& rank, std::size_t r, StepProblems& problems) {
  std::map<StagePart, bool> gathered;
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (task.op != Op::unshard && task.op != Op::reshard) continue;
    const bool gathers = task.op == Op::unshard;
    const bool there = std::exchange(gathered[{task.stage, task.part}], gathers);
    if (there == gathers) problems.add(r, i, gathers ? "the unit is gathered already" : "the unit is not gathered");
  }
}

void check_activations(const RankStep& rank, std::size_t r, StepProblems& problems) {
  enum class State : std::uint8_t { none, made, used };
  std::map<StagePart, State> states;  // by stage and microbatch
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (task.lane != Lane::compute || !is_compute(task.op)) continue;
    State& state = states[{task.stage, task.microbatch}];
    if (task.op == Op::forward) {
      if (state == State::used) problems.add(r, i, "a forward after its backward");
      state = State::made;
    } else if (state == State::none) {
      problems.add(r, i, "the activations are not there");
    } else if (task.op == Op::weight_gradient) {
      if (state == State::made) problems.add(r, i, "the gradient of the weights before that of the input");
    } else {
      state = State::used;
    }
  }
}

}  // namespace

std::vector<StepProblem> check_step(const Step& step, std::size_t limit) {
  StepProblems problems(limit);
  for_tasks(step, [&](std::size_t r, std::uint32_t i, const Task& task) { check_task(step, r, i, task, problems); });
  check_groups(step, problems);
  if (!problems.empty()) return problems.take();  // the rest takes these for granted
  check_exchange(step, problems);
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    check_units(step.of_rank[r], r, problems);
    check_activations(step.of_rank[r], r, problems);
  }
  if (!problems.empty()) return problems.take();
  for (StepProblem& stuck : stuck_tasks(step)) {
    problems.add(static_cast<std::size_t>(stuck.rank), stuck.task, std::move(stuck.what));
  }
  return problems.take();
}

std::string text_of(const Step& step, const StepProblem& problem) {
  std::string text = "rank " + std::to_string(problem.rank);
  const auto& tasks = step.of_rank[static_cast<std::size_t>(problem.rank)].tasks;
  if (problem.task < tasks.size()) {
    const Task& task = tasks[problem.task];
    text += ", task " + std::to_string(problem.task) + " (" + token_of({task.op, task.stage, task.microbatch}) + ")";
  }
  return text + ": " + problem.what;
}

void check_step_or_throw(const Step& step) {
  const auto problems = check_step(step, 1);
  LOCKSTEP_CHECK(problems.empty(), step.name + ": " + text_of(step, problems.front()));
}

}  // namespace lockstep::schedules
