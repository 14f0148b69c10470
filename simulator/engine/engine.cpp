#include "simulator/engine/engine.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "schedules/schedule.h"
#include "simulator/engine/program.h"

namespace lockstep::simulator {
namespace {

using schedules::Group;
using schedules::kNumLanes;
using schedules::Step;
using schedules::Task;
using schedules::TaskSpan;

constexpr std::int64_t kNotYet = -1;
constexpr auto kCompute = static_cast<std::uint32_t>(schedules::Lane::compute);
constexpr double kLeastRate = 0.1;  // slowest rate of a kernel, however many collectives run at the same time

// Fields of an event's code: a kind, a rank, and a lane, a receive or a message.
enum class What : std::uint64_t { lane_done, arrival, fair_end, issued };
std::uint64_t code_of(What what, std::uint64_t rank, std::uint64_t detail) {
  return static_cast<std::uint64_t>(what) << 62U | rank << 32U | detail;
}
What what_of(std::uint64_t code) {
  return static_cast<What>(code >> 62U);
}
std::size_t rank_of(std::uint64_t code) {
  return (code >> 32U) & 0x3fffffffU;
}
std::uint32_t detail_of(std::uint64_t code) {
  return static_cast<std::uint32_t>(code);
}

// A kernel that concurrent collectives may slow down. Its end moves each time one begins or ends; of all scheduled
// ends, only the latest version counts.
struct RunningKernel {
  std::uint32_t index = 0;  // in RankStep::tasks
  std::uint32_t version = 0;
  bool runs = false;
  std::int64_t start_ps = 0;
  std::int64_t since_ps = 0;  // start of its current rate
  std::int64_t left_ps = 0;   // remaining time at full rate, at that start
};

struct RankState {
  RankProgram program;
  std::array<std::uint32_t, kNumLanes> done = {};  // finished tasks per lane
  std::uint32_t busy = 0;                          // bit per lane: its next task has started or waits for other ranks
  std::uint32_t open = 0;                          // bit per lane: it has tasks left
  std::array<LaneProgress, kNumLanes> unmet = {};  // per idle lane: an unmet dependency of its next task
  std::vector<TaskSpan> messages;                  // per receive: when its bytes moved; end kNotYet before
  RunningKernel kernel;
  std::int32_t collectives = 0;  // number of running collectives that slow kernels down
  std::uint32_t slowing = 0;     // bit per lane: it runs one of them
  // The host: the index of the run of RankProgram::runs that it issues, the time from which its issued_ps count, and
  // the number of ended tasks that it may wait for.
  std::size_t issue_run = 0;
  std::int64_t issue_begin_ps = 0;
  std::uint32_t core_done = 0;
};

// A message on a fair link.
struct FairMessage {
  std::size_t sender = 0;
  std::uint32_t lane = 0;  // lane of the sender
  std::size_t receiver = 0;
  std::uint32_t tag = 0;
  std::int64_t latency_ps = 0;
  std::int64_t start_ps = 0;
};

class Engine {
 public:
  Engine(const Step& step, const Topology& topology, const CollectiveTime& collective_time, double taken,
         const TakesNone& takes_none)
      : step_(step),
        topology_(topology),
        collective_time_(collective_time),
        taken_(taken),
        takes_none_(takes_none),
        links_(topology.links()),
        ranks_(step.of_rank.size()),
        waiting_(step.groups.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      RankState& rank = ranks_[r];
      rank.program = compile(step.of_rank[r]);
      rank.messages.resize(rank.program.num_receives, {0, kNotYet});
      for (std::uint32_t lane = 0; lane < kNumLanes; ++lane) {
        if (rank.program.first[lane] < rank.program.first[lane + 1]) rank.open |= 1U << lane;
      }
      result_.timeline.emplace_back(step.of_rank[r].tasks.size());
    }
  }

  Simulation run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) advance(r);
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      now_ = event.time_ps;
      ++result_.events;
      happen(event.code);
    }
    if (std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.open != 0; })) {
      throw core::usage_error(step_.name + ": deadlock: " + hang_text());
    }
    return std::move(result_);
  }

 private:
  void happen(std::uint64_t code) {
    switch (what_of(code)) {
      case What::lane_done:
        return end_lane_task(rank_of(code), detail_of(code));
      case What::arrival:
        return arrive(rank_of(code), detail_of(code));
      case What::fair_end:
        return end_fair(detail_of(code));
      case What::issued:
        return start_issued(rank_of(code), detail_of(code));
    }
  }

  // `detail`: the lane and, for a kernel that may be slowed down, the version of its end.
  void end_lane_task(std::size_t r, std::uint32_t detail) {
    RankState& rank = ranks_[r];
    const std::uint32_t lane = detail % kNumLanes;
    const std::uint32_t version = detail / kNumLanes;
    if (version != 0 && version != rank.kernel.version) {
      --result_.events;
      return;
    }
    if (version != 0) rank.kernel.runs = false;
    if ((rank.slowing >> lane & 1U) != 0) {
      rank.slowing &= ~(1U << lane);
      add_collectives(r, -1);
    }
    finish(r, lane);
    advance(r);
  }

  const LaneTask& head(const RankState& rank, std::uint32_t lane) const {
    return rank.program.tasks[rank.program.first[lane] + rank.done[lane]];
  }

  // Starts whatever can start now on a rank.
  void advance(std::size_t r) {
    RankState& rank = ranks_[r];
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t idle = rank.open & ~rank.busy; idle != 0; idle &= idle - 1) {
        const auto lane = static_cast<std::uint32_t>(__builtin_ctz(idle));
        if (is_behind(rank, rank.unmet[lane])) continue;
        const LaneTask& task = head(rank, lane);
        if (!is_free(rank, lane, task) || !may_be_issued(rank, task)) continue;
        rank.busy |= 1U << lane;
        __builtin_prefetch(&task + 1);  // by the end of this task other ranks have used the cache
        again |= start_when_issued(r, lane, task);
      }
    }
  }

  static bool is_behind(const RankState& rank, const LaneProgress& place) {
    return rank.done[place.lane] < place.count;
  }

  static bool is_free(RankState& rank, std::uint32_t lane, const LaneTask& task) {
    const LaneProgress* after = rank.program.after.data() + task.first_after;
    for (std::uint32_t i = 0; i < task.num_after; ++i) {
      if (!is_behind(rank, after[i])) continue;
      rank.unmet[lane] = after[i];
      return false;
    }
    return true;
  }

  // True if the host currently issues the run of tasks that contains this one.
  static bool may_be_issued(const RankState& rank, const LaneTask& task) {
    return rank.program.issued_ps.empty() || task.index < rank.program.runs[rank.issue_run].end;
  }

  // Time at which the host has issued the task; it starts issuing when it has issued the previous one.
  static std::int64_t issued_at(const RankState& rank, std::uint32_t index) {
    return rank.program.issued_ps.empty() ? 0 : rank.issue_begin_ps + rank.program.issued_ps[index];
  }
  static std::int64_t issue_begins_at(const RankState& rank, const LaneTask& task) {
    if (rank.program.issued_ps.empty()) return 0;
    return rank.issue_begin_ps + (task.index == 0 ? 0 : rank.program.issued_ps[task.index - 1]);
  }

  // A kernel task may represent many kernels; the first starts while the host issues the others.
  bool start_when_issued(std::size_t r, std::uint32_t lane, const LaneTask& task) {
    const RankState& rank = ranks_[r];
    const std::int64_t from = task.kind == TaskKind::kernel ? issue_begins_at(rank, task) : issued_at(rank, task.index);
    if (from <= now_ || task.kind == TaskKind::receive) return start(r, lane, task);
    queue_.push({from, code_of(What::issued, r, lane)});
    return false;
  }

  void start_issued(std::size_t r, std::uint32_t lane) {
    if (start(r, lane, head(ranks_[r], lane))) advance(r);
  }

  // The host continues when the tasks that it waits for have ended.
  void pass_wait(RankState& rank) {
    while (rank.issue_run + 1 < rank.program.runs.size() &&
           rank.core_done == rank.program.runs[rank.issue_run].num_core) {
      const std::uint32_t end = rank.program.runs[rank.issue_run++].end;
      rank.issue_begin_ps = now_ - rank.program.issued_ps[end - 1];
    }
  }

  // Starts a task. True if it has ended immediately, so that others may start.
  bool start(std::size_t r, std::uint32_t lane, const LaneTask& task) {
    switch (task.kind) {
      case TaskKind::kernel:
        if (taken_ > 0 && lane == kCompute && task.amount > 0) return run_kernel(r, task);
        return occupy(r, lane, task, {now_, std::max(now_ + task.amount, issued_at(ranks_[r], task.index))});
      case TaskKind::send:
        return send(r, lane, task);
      case TaskKind::receive:
        return receive(r, lane, task);
      case TaskKind::collective:
        return join(lane, task);
    }
    return false;
  }

  bool occupy(std::size_t r, std::uint32_t lane, const LaneTask& task, const TaskSpan& span) {
    result_.timeline[r][task.index] = span;
    if (span.end_ps <= now_) {
      finish(r, lane);
      return true;
    }
    queue_.push({span.end_ps, code_of(What::lane_done, r, lane)});
    return false;
  }

  bool run_kernel(std::size_t r, const LaneTask& task) {
    RunningKernel& kernel = ranks_[r].kernel;
    kernel = {task.index, kernel.version, true, now_, now_, task.amount};
    announce_end(r);
    return false;
  }

  double kernel_rate(const RankState& rank) const { return std::max(kLeastRate, 1 - taken_ * rank.collectives); }

  void announce_end(std::size_t r) {
    RunningKernel& kernel = ranks_[r].kernel;
    const double left_ps = std::ceil(static_cast<double>(kernel.left_ps) / kernel_rate(ranks_[r]));
    const std::int64_t end_ps = std::max(now_ + static_cast<std::int64_t>(left_ps), issued_at(ranks_[r], kernel.index));
    result_.timeline[r][kernel.index] = {kernel.start_ps, end_ps};
    queue_.push({end_ps, code_of(What::lane_done, r, kCompute + kNumLanes * ++kernel.version)});
  }

  void add_collectives(std::size_t r, std::int32_t change) {
    RankState& rank = ranks_[r];
    RunningKernel& kernel = rank.kernel;
    const double done_ps = static_cast<double>(now_ - kernel.since_ps) * kernel_rate(rank);
    rank.collectives += change;
    if (taken_ == 0 || !kernel.runs) return;
    kernel.left_ps = std::max<std::int64_t>(0, kernel.left_ps - std::llround(done_ps));
    kernel.since_ps = now_;
    announce_end(r);
  }

  void finish(std::size_t r, std::uint32_t lane) {
    RankState& rank = ranks_[r];
    result_.makespan_ps = std::max(result_.makespan_ps, now_);
    rank.busy &= ~(1U << lane);
    if (!rank.program.issued_ps.empty() && is_core(static_cast<schedules::Lane>(lane))) {
      ++rank.core_done;
      pass_wait(rank);
    }
    if (rank.program.first[lane] + ++rank.done[lane] == rank.program.first[lane + 1]) rank.open &= ~(1U << lane);
  }

  bool send(std::size_t r, std::uint32_t lane, const LaneTask& task) {
    const auto receiver = static_cast<std::size_t>(task.peer);
    const auto tag = static_cast<std::uint32_t>(task.tag);
    const Path path = topology_.path(static_cast<std::int32_t>(r), task.peer);
    if (LinkState::is_fair(path, topology_.links())) {
      const auto message = static_cast<std::uint32_t>(fair_messages_.size());
      fair_messages_.push_back({r, lane, receiver, tag, path.latency_ps, now_});
      links_.start(message, path, task.amount, now_);
      watch_fair();
      return false;
    }
    const Departure departure = links_.book(path, task.amount, now_);
    announce(receiver, tag, {departure.start_ps, departure.passed_ps + path.latency_ps});
    return occupy(r, lane, task, {departure.start_ps, departure.left_ps});
  }

  void announce(std::size_t receiver, std::uint32_t tag, const TaskSpan& span) {
    ranks_[receiver].messages[tag].start_ps = span.start_ps;
    queue_.push({span.end_ps, code_of(What::arrival, receiver, tag)});
  }

  bool receive(std::size_t r, std::uint32_t lane, const LaneTask& task) {
    const TaskSpan& message = ranks_[r].messages[static_cast<std::size_t>(task.tag)];
    if (message.end_ps == kNotYet) return false;  // arrive() continues
    result_.timeline[r][task.index] = message;
    finish(r, lane);
    return true;
  }

  void arrive(std::size_t r, std::uint32_t tag) {
    RankState& rank = ranks_[r];
    rank.messages[tag].end_ps = now_;
    for (std::uint32_t busy = rank.busy; busy != 0; busy &= busy - 1) {
      const auto lane = static_cast<std::uint32_t>(__builtin_ctz(busy));
      const LaneTask& waiting = head(rank, lane);
      if (waiting.kind != TaskKind::receive || static_cast<std::uint32_t>(waiting.tag) != tag) continue;
      receive(r, lane, waiting);
      return advance(r);
    }
  }

  // The last member to arrive starts the collective for all. Members match per lane: a group may gather in one lane
  // while it reduces in another, as with two communicators.
  bool join(std::uint32_t lane, const LaneTask& task) {
    const auto g = static_cast<std::size_t>(task.peer);
    const Group& group = step_.groups[g];
    if (++waiting_[g][lane] < group.ranks.size()) return false;
    waiting_[g][lane] = 0;
    const Task whole{.comm = task.comm, .peer = task.peer, .amount = task.amount};
    const std::int64_t end = now_ + collective_time_(group, whole);
    const bool slows = !takes_none_ || !takes_none_(whole);
    for (const std::int32_t member : group.ranks) {
      const auto r = static_cast<std::size_t>(member);
      result_.timeline[r][head(ranks_[r], lane).index] = {now_, end};
      if (slows) {
        ranks_[r].slowing |= 1U << lane;
        add_collectives(r, 1);
      }
      queue_.push({end, code_of(What::lane_done, r, lane)});
    }
    return false;
  }

  void watch_fair() {
    const auto next = links_.next_end();
    if (next) queue_.push({next->time_ps, code_of(What::fair_end, 0, ++fair_generation_)});
  }

  void end_fair(std::uint32_t generation) {
    if (generation != fair_generation_) return;  // shares have changed since
    const std::uint32_t name = links_.next_end()->message;
    const FairMessage message = fair_messages_[name];
    links_.finish(name, now_);
    watch_fair();
    announce(message.receiver, message.tag, {message.start_ps, now_ + message.latency_ps});
    result_.timeline[message.sender][head(ranks_[message.sender], message.lane).index] = {message.start_ps, now_};
    finish(message.sender, message.lane);
    advance(message.sender);
  }

  std::string hang_text() const {
    std::string text;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::uint32_t lane = 0; lane < kNumLanes; ++lane) {
        if ((ranks_[r].busy >> lane & 1U) == 0) continue;  // blocked by other lanes of its own rank
        add_waiter(text, static_cast<std::int32_t>(r), step_.of_rank[r].tasks[head(ranks_[r], lane).index]);
      }
    }
    return text;
  }

  const Step& step_;
  const Topology& topology_;
  const CollectiveTime& collective_time_;
  double taken_ = 0;
  const TakesNone& takes_none_;
  LinkState links_;
  std::vector<RankState> ranks_;
  std::vector<std::array<std::size_t, kNumLanes>> waiting_;  // [group][lane]: members that have arrived
  std::vector<FairMessage> fair_messages_;
  std::uint32_t fair_generation_ = 0;
  EventQueue queue_;
  std::int64_t now_ = 0;
  Simulation result_;
};

}  // namespace

Simulation simulate(const Step& step, const Topology& topology, const CollectiveTime& collective_time, double taken,
                    const TakesNone& takes_none) {
  return Engine(step, topology, collective_time, taken, takes_none).run();
}

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
