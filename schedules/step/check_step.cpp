// check_step(): references to tasks, messages and collectives that match, and an order that ends.
#include "schedules/step/step.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

// Collects problems, up to a limit.
class StepProblems {
 public:
  explicit StepProblems(std::size_t limit) : limit_(limit) {}
  void add(std::size_t rank, std::uint32_t task, std::string what) {
    if (all_.size() < limit_) all_.push_back({static_cast<std::int32_t>(rank), task, std::move(what)});
  }
  bool empty() const { return all_.empty(); }
  std::vector<StepProblem> take() { return std::move(all_); }

 private:
  std::size_t limit_;
  std::vector<StepProblem> all_;
};

template <typename Visit>  // (rank, index, task)
void for_tasks(const Step& step, const Visit& visit) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    const auto& tasks = step.of_rank[r].tasks;
    for (std::uint32_t i = 0; i < tasks.size(); ++i) visit(r, i, tasks[i]);
  }
}

// Checks that messages have matching senders and receivers and that group members issue matching collectives.
// All ranks, groups and edges that tasks name have to exist.
class ExchangeChecker {
 public:
  ExchangeChecker(const Step& step, StepProblems& problems) : step_(step), problems_(problems) {}

  void check_messages() {
    struct SentMessage {
      std::size_t sender = 0;
      std::uint32_t task = 0;
      bool taken = false;
    };
    std::map<std::pair<std::int32_t, std::int32_t>, SentMessage> sent;  // by receiver and tag
    for_tasks(step_, [&](std::size_t r, std::uint32_t i, const Task& task) {
      if (!is_send(task.op)) return;
      if (!sent.try_emplace({task.peer, task.tag}, SentMessage{r, i}).second) {
        add(r, i, "a second message to rank " + std::to_string(task.peer) + " with tag " + std::to_string(task.tag));
      }
    });
    std::vector<std::int32_t> receives(step_.of_rank.size(), 0);
    for_tasks(step_, [&](std::size_t r, std::uint32_t, const Task& task) { receives[r] += is_recv(task.op) ? 1 : 0; });
    for_tasks(step_, [&](std::size_t r, std::uint32_t i, const Task& task) {
      if (!is_recv(task.op)) return;
      if (task.tag < 0 || task.tag >= receives[r]) return add(r, i, "tags are 0 to " + std::to_string(receives[r] - 1));
      const auto found = sent.find({static_cast<std::int32_t>(r), task.tag});
      if (found == sent.end()) return add(r, i, "no rank sends tag " + std::to_string(task.tag));
      SentMessage& message = found->second;
      const Task& send = step_.of_rank[message.sender].tasks[message.task];
      if (std::exchange(message.taken, true)) add(r, i, "a second receive of tag " + std::to_string(task.tag));
      if (static_cast<std::int32_t>(message.sender) != task.peer) {
        add(r, i,
            "waits for rank " + std::to_string(task.peer) + ", and rank " + std::to_string(message.sender) +
                " sends its tag");
      }
      if (send.amount != task.amount) add(r, i, "gets " + std::to_string(send.amount) + " bytes");
    });
    for (const auto& [to, message] : sent) {
      if (!message.taken) add(message.sender, message.task, "no rank receives it");
    }
  }

  void check_collectives() {
    // By group and lane: the first member that issues collectives, with these, and the number of such members.
    std::map<std::pair<std::int32_t, Lane>, std::pair<std::size_t, std::vector<Collective>>> first;
    std::map<std::pair<std::int32_t, Lane>, std::size_t> members;
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      for (auto& [where, issued] : collectives_of(r)) {
        ++members[where];
        if (!is_member(r, where.first)) {
          add(r, issued.front().task, "the rank is not a member of group " + std::to_string(where.first));
          continue;
        }
        const auto [at, is_first] = first.try_emplace(where, r, issued);
        if (!is_first) compare(r, issued, at->second.first, at->second.second);
      }
    }
    for (const auto& [where, issuer] : first) {
      const auto& ranks = step_.groups[static_cast<std::size_t>(where.first)].ranks;
      if (members[where] == ranks.size()) continue;
      add(issuer.first, issuer.second.front().task,
          "only " + std::to_string(members[where]) + " of the group's " + std::to_string(ranks.size()) +
              " ranks issue its collectives in lane " + std::string(name_of(where.second)));
    }
  }

 private:
  struct Collective {
    Comm comm = Comm::none;
    std::int64_t bytes = 0;
    std::int32_t place = -1;  // index of the stage in its pipe, equal for copies of a stage
    std::int32_t part = -1;
    std::uint32_t task = 0;  // index in the rank's tasks

    bool meets(const Collective& other) const {
      return comm == other.comm && bytes == other.bytes && place == other.place && part == other.part;
    }
    std::string text() const {
      std::string what = std::string(name_of(comm)) + " of " + std::to_string(bytes) + " bytes";
      if (place >= 0) what += " of place " + std::to_string(place) + " in its pipe";
      if (part >= 0) what += ", part " + std::to_string(part);
      return what;
    }
  };

  // The operations that one rank issues to each group in each lane.
  std::map<std::pair<std::int32_t, Lane>, std::vector<Collective>> collectives_of(std::size_t r) const {
    std::map<std::pair<std::int32_t, Lane>, std::vector<Collective>> issued;
    const auto& tasks = step_.of_rank[r].tasks;
    for (std::uint32_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].comm == Comm::none) continue;
      const bool has_place =
          tasks[i].stage >= 0 && step_.stages_per_pipe > 0;  // a trace of other programs has no pipes
      const std::int32_t place = has_place ? tasks[i].stage % step_.stages_per_pipe : -1;
      issued[{tasks[i].peer, tasks[i].lane}].push_back({tasks[i].comm, tasks[i].amount, place, tasks[i].part, i});
    }
    return issued;
  }

  bool is_member(std::size_t rank, std::int32_t group) const {
    for (const std::int32_t member : step_.groups[static_cast<std::size_t>(group)].ranks) {
      if (member == static_cast<std::int32_t>(rank)) return true;
    }
    return false;
  }

  void compare(std::size_t r, const std::vector<Collective>& mine, std::size_t other,
               const std::vector<Collective>& theirs) {
    for (std::size_t k = 0; k < mine.size(); ++k) {
      if (k == theirs.size())
        return add(r, mine[k].task, "rank " + std::to_string(other) + " does not issue this collective");
      if (mine[k].meets(theirs[k])) continue;
      return add(r, mine[k].task, mine[k].text() + " meets " + theirs[k].text() + " of rank " + std::to_string(other));
    }
    if (mine.size() < theirs.size()) {
      add(other, theirs[mine.size()].task, "rank " + std::to_string(r) + " does not issue this collective");
    }
  }

  void add(std::size_t rank, std::uint32_t task, std::string what) { problems_.add(rank, task, std::move(what)); }

  const Step& step_;
  StepProblems& problems_;
};

// ---- Runs a step without times, to see whether it ends. Its edges, messages and groups have to be correct.

struct RankState {
  std::array<std::vector<std::uint32_t>, kNumLanes> tasks_of = {};  // by lane
  std::array<std::size_t, kNumLanes> next = {};
  std::array<bool, kNumLanes> in_collective = {};  // true: the lane's next collective has been counted in its group
  std::vector<bool> done = {};
  std::vector<bool> arrived = {};  // by tag
};

class UntimedRun {
 public:
  explicit UntimedRun(const Step& step) : step_(step), ranks_(step.of_rank.size()), waiting_(step.groups.size()) {
    for (auto& lanes : waiting_) lanes.fill(0);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto& tasks = step.of_rank[r].tasks;
      for (std::uint32_t i = 0; i < tasks.size(); ++i) {
        ranks_[r].tasks_of[static_cast<std::size_t>(tasks[i].lane)].push_back(i);
      }
      ranks_[r].done.resize(tasks.size());
      ranks_[r].arrived.resize(static_cast<std::size_t>(
          std::count_if(tasks.begin(), tasks.end(), [](const Task& task) { return is_recv(task.op); })));
      runnable_.push_back(r);
    }
  }

  void run() {
    while (!runnable_.empty()) {
      const std::size_t r = runnable_.back();
      runnable_.pop_back();
      bool any = true;
      while (any) {
        any = false;
        for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
          while (try_next(r, lane)) any = true;
        }
      }
    }
  }

  // The task at which each unfinished lane is blocked.
  void add_stuck(StepProblems& problems) const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
        const auto& tasks = ranks_[r].tasks_of[lane];
        if (ranks_[r].next[lane] == tasks.size()) continue;
        problems.add(r, tasks[ranks_[r].next[lane]],
                     "is blocked in lane " + std::string(name_of(static_cast<Lane>(lane))));
      }
    }
  }

 private:
  bool try_next(std::size_t r, std::size_t lane) {
    RankState& rank = ranks_[r];
    if (rank.next[lane] == rank.tasks_of[lane].size()) return false;
    const std::uint32_t i = rank.tasks_of[lane][rank.next[lane]];
    const Task& task = step_.of_rank[r].tasks[i];
    for (const std::uint32_t earlier : step_.of_rank[r].after_of(task)) {
      if (!rank.done[earlier]) return false;
    }
    if (is_recv(task.op) && !rank.arrived[static_cast<std::size_t>(task.tag)]) return false;
    if (task.comm != Comm::none) return meet(r, lane, task);
    if (is_send(task.op)) {
      const auto peer = static_cast<std::size_t>(task.peer);
      ranks_[peer].arrived[static_cast<std::size_t>(task.tag)] = true;
      runnable_.push_back(peer);
    }
    end(r, lane);
    return true;
  }

  void end(std::size_t r, std::size_t lane) {
    RankState& rank = ranks_[r];
    rank.done[rank.tasks_of[lane][rank.next[lane]++]] = true;
    rank.in_collective[lane] = false;
  }

  bool meet(std::size_t r, std::size_t lane, const Task& task) {
    const auto g = static_cast<std::size_t>(task.peer);
    if (ranks_[r].in_collective[lane]) return false;
    ranks_[r].in_collective[lane] = true;
    if (++waiting_[g][lane] < step_.groups[g].ranks.size()) return false;
    waiting_[g][lane] = 0;
    for (const std::int32_t member : step_.groups[g].ranks) {
      end(static_cast<std::size_t>(member), lane);
      runnable_.push_back(static_cast<std::size_t>(member));
    }
    return true;
  }

  const Step& step_;
  std::vector<RankState> ranks_;
  std::vector<std::array<std::size_t, kNumLanes>>
      waiting_;  // [group][lane]: members that wait at the group's collective
  std::vector<std::size_t> runnable_;
};

// ---- Edges, messages and groups.

void check_task(const Step& step, std::size_t r, std::uint32_t i, const Task& task, StepProblems& problems) {
  const std::size_t edges = step.of_rank[r].after.size();
  if (task.first_after > edges || task.num_after > edges - task.first_after) {
    return problems.add(r, i, "its `after` edges are out of range");
  }
  for (const std::uint32_t earlier : step.of_rank[r].after_of(task)) {
    if (earlier < i) continue;
    problems.add(r, i, "waits for task " + std::to_string(earlier) + ", which is not issued before it");
  }
  if (task.amount < 0) problems.add(r, i, "the amount is negative: " + std::to_string(task.amount));
  if (task.stage < -1 || task.stage >= step.num_stages()) problems.add(r, i, "there is no such stage");
  if (task.comm != Comm::none) {
    const bool there = task.peer >= 0 && static_cast<std::size_t>(task.peer) < step.groups.size();
    if (!there) problems.add(r, i, "there is no such group");
  } else if (is_send(task.op) || is_recv(task.op)) {
    if (task.peer < 0 || task.peer >= step.num_ranks()) problems.add(r, i, "its peer is not a rank");
  }
}

void check_groups(const Step& step, StepProblems& problems) {
  std::map<std::pair<std::int32_t, GroupKind>, std::size_t> group_of;
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    for (const std::int32_t rank : step.groups[g].ranks) {
      const std::string kind(name_of(step.groups[g].kind));
      if (rank < 0 || rank >= step.num_ranks()) {
        problems.add(0, UINT32_MAX, "group " + std::to_string(g) + " has the rank " + std::to_string(rank));
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
    if (there == gathers) problems.add(r, i, gathers ? "the unit is already gathered" : "the unit is not gathered");
  }
}

void check_activations(const RankStep& rank, std::size_t r, StepProblems& problems) {
  enum class GradientState : std::uint8_t { none, made, used };
  std::map<StagePart, GradientState> states;  // by stage and microbatch
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (task.lane != Lane::compute || !is_compute(task.op)) continue;
    GradientState& state = states[{task.stage, task.microbatch}];
    if (task.op == Op::forward) {
      if (state == GradientState::used) problems.add(r, i, "the forward comes after its backward");
      state = GradientState::made;
    } else if (state == GradientState::none) {
      problems.add(r, i, "the activations are missing");
    } else if (task.op == Op::weight_gradient) {
      if (state == GradientState::made) problems.add(r, i, "the weight gradient comes before the input gradient");
    } else {
      state = GradientState::used;
    }
  }
}

}  // namespace

std::vector<StepProblem> check_step(const Step& step, std::size_t limit) {
  StepProblems problems(limit);
  for_tasks(step, [&](std::size_t r, std::uint32_t i, const Task& task) { check_task(step, r, i, task, problems); });
  check_groups(step, problems);
  if (!problems.empty()) return problems.take();  // the remaining checks rely on these
  ExchangeChecker exchanges(step, problems);
  exchanges.check_messages();
  exchanges.check_collectives();
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    check_units(step.of_rank[r], r, problems);
    check_activations(step.of_rank[r], r, problems);
  }
  if (!problems.empty()) return problems.take();
  UntimedRun run(step);
  run.run();
  run.add_stuck(problems);
  return problems.take();
}

std::vector<StepProblem> check_collectives(const Step& step, std::size_t limit) {
  StepProblems problems(limit);
  ExchangeChecker(step, problems).check_collectives();
  return problems.take();
}

std::string text_of(const Step& step, const StepProblem& problem) {
  std::string text = "rank " + std::to_string(problem.rank);
  const auto& tasks = step.of_rank[static_cast<std::size_t>(problem.rank)].tasks;
  if (problem.task < tasks.size()) {
    const Task& task = tasks[problem.task];
    text += ", task " + std::to_string(problem.task) + " (" +
            token_of({task.op, task.stage, task.microbatch}, step.slices) + ")";
  }
  return text + ": " + problem.what;
}

void check_step_or_throw(const Step& step) {
  const auto problems = check_step(step, 1);
  LOCKSTEP_CHECK(problems.empty(), step.name + ": " + text_of(step, problems.front()));
}

}  // namespace lockstep::schedules
