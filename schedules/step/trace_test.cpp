// Traces are read back and compared with the steps that they show.
#include "schedules/step/traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMs = 1'000'000'000;  // in picoseconds
constexpr std::int64_t kOdd = 333'333;       // less than a microsecond, and no whole number of nanoseconds

struct Played {
  Step step;
  StepTimeline timeline;
};

class Player {
 public:
  explicit Player(const Step& step) : step_(step) {
    for (const RankStep& rank : step.of_rank) ends_.emplace_back(rank.tasks.size());
  }

  // Each task starts as early as its lane, its edges and (for a receive) the start of its send allow.
  StepTimeline play() {
    StepTimeline timeline;
    for (const auto& of_rank : ends_) timeline.emplace_back(of_rank.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ends_.size(); ++r) {
        for (std::size_t i = 0; i < ends_[r].size(); ++i) moved = run(timeline, r, i) || moved;
      }
    }
    return timeline;
  }

 private:
  bool run(StepTimeline& timeline, std::size_t r, std::size_t i) {
    const RankStep& rank = step_.of_rank[r];
    if (ends_[r][i]) return false;
    std::int64_t start = 0;
    for (const std::uint32_t before : rank.after_of(rank.tasks[i])) {
      if (!ends_[r][before]) return false;
      start = std::max(start, *ends_[r][before]);
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (rank.tasks[k].lane != rank.tasks[i].lane) continue;
      if (!ends_[r][k]) return false;
      start = std::max(start, *ends_[r][k]);
    }
    const auto end = end_of(rank.tasks[i], r, start);
    if (!end) return false;
    timeline[r][i] = {start, *end};
    ends_[r][i] = *end;
    return true;
  }

  std::optional<std::int64_t> end_of(const Task& task, std::size_t r, std::int64_t start) const {
    if (!is_recv(task.op)) return start + task.amount;
    const auto sender = static_cast<std::size_t>(task.peer);
    const auto& tasks = step_.of_rank[sender].tasks;
    for (std::size_t k = 0; k < tasks.size(); ++k) {
      const bool mine = is_send(tasks[k].op) && tasks[k].peer == static_cast<int>(r) && tasks[k].tag == task.tag;
      if (mine && ends_[sender][k]) return std::max(start, *ends_[sender][k]);
    }
    return std::nullopt;
  }

  const Step& step_;
  std::vector<std::vector<std::optional<std::int64_t>>> ends_;
};

Played one_f_one_b(std::int64_t forward_ps, std::int64_t message_ps = kMs / 10 + kOdd) {
  const Schedule schedule = make_schedule("1f1b", {.ranks = 4, .microbatches = 8});
  const std::vector<StageCosts> costs(4, {forward_ps, forward_ps, forward_ps, message_ps});
  Played played{lower(schedule, costs), {}};
  played.timeline = Player(played.step).play();
  return played;
}

std::vector<Json> events(const std::string& trace, const std::string& phase) {
  std::vector<Json> found;
  const Json file = Json::parse(trace);
  for (const Json& event : file.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

std::map<int, std::string> names(const std::string& trace, const std::string& kind, const char* number) {
  std::map<int, std::string> of;
  for (const Json& event : events(trace, "M")) {
    if (event.at("name") == kind) of[event.at(number)] = event.at("args").at("name");
  }
  return of;
}

std::int64_t ns(const Json& us) {
  return std::llround(us.get<double>() * 1000);
}

TEST(Trace, HasEveryTaskAtItsTimeWithItsName) {
  const Played played = one_f_one_b(kMs + kOdd);
  const std::string trace = to_trace(played.step, played.timeline, "emulated");
  const auto tasks = events(trace, "X");
  std::map<int, std::vector<Json>> of_thread;
  for (const Json& task : tasks) of_thread[task.at("tid")].push_back(task);
  const auto lanes = names(trace, "thread_name", "tid");
  std::size_t compared = 0;
  for (auto& [thread, in_order] : of_thread) {
    const std::size_t r = in_order.front().at("pid").get<std::size_t>() - 1;
    std::size_t next = 0;
    for (std::size_t i = 0; i < played.step.of_rank[r].tasks.size(); ++i) {
      const Task& task = played.step.of_rank[r].tasks[i];
      if (name_of(task.lane) != lanes.at(thread)) continue;
      const Json& event = in_order.at(next++);
      EXPECT_NEAR(event.at("ts").get<double>(), static_cast<double>(played.timeline[r][i].start_ps) * 1e-6, 6e-4);
      EXPECT_EQ(event.at("args").at("microbatch"), task.microbatch);
      EXPECT_EQ(event.at("args").at("stage"), task.stage);
    }
    compared += next;
  }
  EXPECT_EQ(compared, tasks.size());
  EXPECT_EQ(tasks.front().at("name"), "0F0");
  EXPECT_EQ(tasks.front().at("dur"), 1000.333);
  EXPECT_EQ(names(trace, "process_name", "pid").at(3), "emulated rank 2");
}

TEST(Trace, TasksOfALaneFollowEachOther) {
  const Played played = one_f_one_b(kMs + kOdd);
  std::map<int, std::int64_t> end_of;  // by thread
  std::map<int, int> process_of;
  const std::string trace = to_trace(played.step, played.timeline, "emulated");
  const auto lanes = names(trace, "thread_name", "tid");
  for (const Json& event : events(trace, "X")) {
    const int thread = event.at("tid");
    EXPECT_GE(ns(event.at("ts")), end_of[thread]) << event;
    EXPECT_GE(event.at("dur").get<double>(), 0) << event;
    end_of[thread] = ns(event.at("ts")) + ns(event.at("dur"));
    EXPECT_EQ(process_of.try_emplace(thread, event.at("pid")).first->second, event.at("pid"));
  }
  EXPECT_EQ(end_of.size(), lanes.size());
  std::multiset<std::string> kinds;
  for (const auto& [thread, name] : lanes) kinds.insert(name);
  EXPECT_EQ(kinds.count("compute"), 4u);
  EXPECT_EQ(kinds.count("send"), 4u);
  EXPECT_EQ(kinds.count("tensor"), 0u) << "lanes without tasks are not shown";
}

// Ends by phase: "s", the sending task, and "f", the receiving one.
using Arrow = std::map<std::string, Json>;

// Arrows by id. An end belongs to the task before it in its thread and has to lie inside that task.
std::map<int, Arrow> arrows_of(const std::string& trace) {
  std::map<int, Arrow> arrows;
  std::map<int, Json> last;  // last task by thread
  const Json file = Json::parse(trace);
  for (const Json& event : file.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") last[event.at("tid")] = event;
    if (phase != "s" && phase != "f") continue;
    Arrow& arrow = arrows[event.at("id")];
    const Json& task = last.at(event.at("tid"));
    EXPECT_GE(ns(event.at("ts")), ns(task.at("ts")));
    EXPECT_LE(ns(event.at("ts")), ns(task.at("ts")) + ns(task.at("dur")));
    EXPECT_TRUE(phase == "s" || arrow.contains("s")) << "begins before it ends: " << event;
    EXPECT_TRUE(arrow.try_emplace(phase, task).second) << "ends once: " << event;
  }
  return arrows;
}

void expect_arrows_to_join_messages(const Played& played) {
  const auto arrows = arrows_of(to_trace(played.step, played.timeline, "emulated"));
  ASSERT_EQ(arrows.size(), 2u * 3 * 8) << "forward and backward over 3 borders";
  for (const auto& [number, arrow] : arrows) {
    ASSERT_EQ(arrow.size(), 2u) << number;
    const Json &sent = arrow.at("s"), &received = arrow.at("f");
    const Json &from = sent.at("args"), &to = received.at("args");
    const bool forward = sent.at("cat") == "SEND_F";
    EXPECT_EQ(received.at("cat"), forward ? "RECV_F" : "RECV_B");
    EXPECT_EQ(from.at("microbatch"), to.at("microbatch"));
    EXPECT_EQ(from.at("stage").get<int>() + (forward ? 1 : -1), to.at("stage"));
    EXPECT_EQ(from.at("peer").get<int>() + 1, received.at("pid"));
  }
}

TEST(Trace, ArrowsGoFromASendToItsReceive) {
  expect_arrows_to_join_messages(one_f_one_b(kMs + kOdd));
}
TEST(Trace, ArrowsAreWholeWhereMessagesTakeNoTime) {
  expect_arrows_to_join_messages(one_f_one_b(kMs, 0));
}

TEST(Trace, SeveralTimelinesStandOneAboveTheOther) {
  const Played predicted = one_f_one_b(kMs), emulated = one_f_one_b(kMs + kOdd);
  const TracePart parts[] = {{"simulated", &predicted.step, &predicted.timeline},
                             {"emulated", &emulated.step, &emulated.timeline}};
  const std::string trace = to_trace(parts);
  const auto processes = names(trace, "process_name", "pid");
  ASSERT_EQ(processes.size(), 8u);
  EXPECT_EQ(processes.at(1), "simulated rank 0");
  EXPECT_EQ(processes.at(5), "emulated rank 0");
  const auto arrows = arrows_of(trace);
  EXPECT_EQ(arrows.size(), 2u * 2 * 3 * 8);
  for (const auto& [number, arrow] : arrows) {
    EXPECT_EQ(arrow.at("s").at("pid").get<int>() > 4, arrow.at("f").at("pid").get<int>() > 4) << "leaves its timeline";
  }
}

TEST(Trace, CountersAreOfTheirRank) {
  const Played played = one_f_one_b(kMs);
  const TraceCounter counters[] = {{2, "activations \"kept\" (bytes)", {{0, 0}, {3 * kMs, 4096}}}};
  const auto points = events(to_trace(played.step, played.timeline, "simulated", counters), "C");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].at("pid"), 3);
  EXPECT_EQ(points[1].at("name"), "activations \"kept\" (bytes)");
  EXPECT_EQ(points[1].at("ts"), 3000.0);
  EXPECT_EQ(points[1].at("args").at("value"), 4096.0);
}

TEST(Trace, NamesPartsOfAStepThatAreNoPartOfASchedule) {
  Step step{
      .name = "parts", .num_microbatches = 1, .stages_per_pipe = 1, .rank_of_stage = {0}, .of_rank = {}, .groups = {}};
  step.groups.push_back({GroupKind::data, {0}});
  RankStep rank;
  rank.tasks = {{.op = Op::unshard, .lane = Lane::gather, .comm = Comm::all_gather, .stage = 0, .part = 3, .peer = 0},
                {.op = Op::layer_collective, .lane = Lane::tensor, .comm = Comm::all_reduce, .stage = 0, .part = 1},
                {.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::reduce_scatter, .part = 2, .peer = 0},
                {.op = Op::forward, .stage = 0, .microbatch = 0, .part = 1},
                {.op = Op::optimizer}};
  step.of_rank.push_back(rank);
  const StepTimeline timeline{std::vector<TaskSpan>(5, {0, kMs})};
  std::vector<std::string> titles;
  const auto tasks = events(to_trace(step, timeline, "simulated"), "X");
  for (const Json& task : tasks) titles.push_back(task.at("name"));
  EXPECT_EQ(titles, (std::vector<std::string>{"UNSHARD unit 3", "all_reduce layer 1", "reduce_scatter bucket 2",
                                              "0F0 layer 1", "STEP"}));
  EXPECT_EQ(tasks[0].at("args").at("group"), "data");
}

TEST(Trace, RefusesATimelineOfAnotherStep) {
  const Played played = one_f_one_b(kMs);
  EXPECT_THROW(to_trace(played.step, {}, "simulated"), core::Error);
}

}  // namespace
}  // namespace lockstep::schedules
