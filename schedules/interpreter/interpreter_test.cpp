#include "schedules/interpreter/interpreter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include "core/error.h"
#include "core/ranks.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"
#include "testing/core/refusal.h"

namespace lockstep::schedules {
namespace {

// Messages sent by all ranks, by receiver and tag.
struct Mailbox {
  std::mutex mutex;
  std::set<std::pair<std::int32_t, std::int32_t>> sent;
};

// Only records the order in which tasks begin and end.
class NotingWorker : public StageWorker {
 public:
  NotingWorker(const Step& step, std::int32_t rank, Mailbox& mail)
      : rank_(rank), tasks_(step.of_rank[static_cast<std::size_t>(rank)].tasks), mail_(mail) {}

  bool begin(std::uint32_t task) override {
    if (refuses(task)) return false;
    const std::scoped_lock lock(mail_.mutex);
    begun.push_back(task);
    if (is_send(tasks_[task].op)) mail_.sent.insert({tasks_[task].peer, tasks_[task].tag});
    return true;
  }
  bool ended(std::uint32_t task) override {
    const std::scoped_lock lock(mail_.mutex);
    if (is_recv(tasks_[task].op) && !mail_.sent.contains({rank_, tasks_[task].tag})) return false;
    ends.push_back(task);
    return true;
  }
  void idle(int /*thread*/) override { std::this_thread::yield(); }
  void finish() override { finished = true; }
  TaskSpan span_of(std::uint32_t task) const override { return {task, task + 1}; }

  std::vector<std::uint32_t> begun;
  std::vector<std::uint32_t> ends;
  bool finished = false;

 protected:
  virtual bool refuses(std::uint32_t /*task*/) { return false; }

 private:
  std::int32_t rank_;
  const std::vector<Task>& tasks_;
  Mailbox& mail_;
};

Step step_of(std::string_view name, const PipelineShape& shape) {
  const Schedule schedule = make_schedule(name, shape);
  return lower(schedule, std::vector<StageCosts>(static_cast<std::size_t>(schedule.num_stages())));
}

using Workers = std::vector<std::unique_ptr<NotingWorker>>;

template <typename Worker>
Workers workers_of(const Step& step, Mailbox& mail) {
  Workers workers;
  for (std::int32_t r = 0; r < step.num_ranks(); ++r) workers.push_back(std::make_unique<Worker>(step, r, mail));
  return workers;
}

void run(const Step& step, const Workers& workers, const InterpreterOptions& options = {}) {
  core::AbortFlag abort;
  core::run_ranks(core::Sharing::threads, step.num_ranks(), abort, [&](int rank) {
    const auto spans = run_rank(step, rank, *workers[static_cast<std::size_t>(rank)], abort, options);
    EXPECT_EQ(spans.size(), step.of_rank[static_cast<std::size_t>(rank)].tasks.size());
  });
}

// Every task runs once, in its lane's order, after all tasks that it waits for.
void expect_in_order(const RankStep& rank, const NotingWorker& worker) {
  ASSERT_EQ(worker.begun.size(), rank.tasks.size());
  EXPECT_EQ(std::set(worker.begun.begin(), worker.begun.end()).size(), rank.tasks.size());
  EXPECT_EQ(worker.ends.size(), rank.tasks.size());
  EXPECT_TRUE(worker.finished);
  std::vector<std::size_t> place(rank.tasks.size());
  for (std::size_t i = 0; i < worker.begun.size(); ++i) place[worker.begun[i]] = i;
  std::array<std::size_t, kNumLanes> last = {};
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    std::size_t& in_lane = last[static_cast<std::size_t>(rank.tasks[i].lane)];
    EXPECT_GE(place[i] + 1, in_lane) << "lanes keep their order";
    in_lane = place[i] + 1;
    for (const std::uint32_t earlier : rank.after_of(rank.tasks[i])) EXPECT_LT(place[earlier], place[i]);
  }
}

TEST(Interpreter, RunsEveryTaskOnceInOrder) {
  for (const CatalogueEntry& entry : catalogue()) {
    const PipelineShape shape{4, 8, entry.takes_chunks ? 2 : 1};
    const Step step = step_of(entry.name, shape);
    for (std::uint8_t other = 0; other < 3; ++other) {  // the rank's other threads
      Mailbox mail;
      const Workers workers = workers_of<NotingWorker>(step, mail);
      InterpreterOptions options;
      options.thread_of[static_cast<std::size_t>(Lane::send)] = other;
      options.thread_of[static_cast<std::size_t>(Lane::receive)] = other == 0 ? 0 : 1;
      run(step, workers, options);
      for (std::size_t r = 0; r < workers.size(); ++r) expect_in_order(step.of_rank[r], *workers[r]);
    }
  }
}

// Refuses to begin a task twice, and begins it at the third call.
class SlowWorker final : public NotingWorker {
 public:
  using NotingWorker::NotingWorker;

 private:
  bool refuses(std::uint32_t task) override { return ++asked_[task] < 3; }
  std::map<std::uint32_t, int> asked_;
};

TEST(Interpreter, AsksAgainWhereAWorkerCannotBeginYet) {
  const Step step = step_of("1f1b", {3, 5, 1});
  Mailbox mail;
  const Workers workers = workers_of<SlowWorker>(step, mail);
  run(step, workers);
  for (std::size_t r = 0; r < workers.size(); ++r) expect_in_order(step.of_rank[r], *workers[r]);
}

std::string failure_of(const Step& step, const Workers& workers, core::Failure expected) {
  InterpreterOptions options;
  options.deadline = std::chrono::milliseconds(100);
  return core::refusal_of([&] { run(step, workers, options); }, expected);
}

// Two ranks wait for each other: past the deadline the error names the tasks and what they wait for.
TEST(Interpreter, NamesWhereRanksStandThatWaitForEver) {
  const Schedule schedule = make_schedule("1f1b", {2, 2, 1});
  Step step = lower(schedule, std::vector<StageCosts>(2));
  auto& tasks = step.of_rank[0].tasks;
  std::erase_if(tasks, [](const Task& task) { return task.op == Op::send_activations && task.microbatch == 1; });
  // Edges are removed, as their indices no longer fit.
  for (Task& task : tasks) task.num_after = 0;
  Mailbox mail;
  const std::string text = failure_of(step, workers_of<NotingWorker>(step, mail), core::Failure::timeout);
  // Either rank may see the deadline first.
  const bool rank_1 = text.find("rank 1: nothing began or ended for 100 ms") != std::string::npos &&
                      text.find("compute at 1F1, which waits for 1RECV_F1 from rank 0") != std::string::npos;
  const bool rank_0 = text == "rank 0: nothing began or ended for 100 ms: receive at 0RECV_B1 from rank 1";
  EXPECT_TRUE(rank_1 || rank_0) << text;
}

class FailingWorker final : public NotingWorker {
 public:
  using NotingWorker::NotingWorker;

 private:
  bool refuses(std::uint32_t task) override {
    if (task > 6) throw core::Error(core::Failure::wrong_data, "a broken device");
    return false;
  }
};

TEST(Interpreter, OneFailureEndsAllRanksAndAllTheirThreads) {
  const Step step = step_of("gpipe", {4, 8, 1});
  Mailbox mail;
  const Workers workers = workers_of<FailingWorker>(step, mail);
  InterpreterOptions options;
  options.thread_of[static_cast<std::size_t>(Lane::receive)] = 1;
  EXPECT_EQ(core::refusal_of([&] { run(step, workers, options); }, core::Failure::wrong_data), "a broken device");
}

TEST(Interpreter, TasksButMessagesBeginInTheOrderOfIssueIfAsked) {
  for (const char* const name : {"1f1b", "gpipe", "interleaved", "zb_h1"}) {
    const Step step = step_of(name, {4, 8, std::string_view(name) == "interleaved" ? 2 : 1});
    Mailbox mail;
    const Workers workers = workers_of<NotingWorker>(step, mail);
    run(step, workers, {.in_issue_order = true});
    for (std::size_t r = 0; r < workers.size(); ++r) {
      std::vector<std::uint32_t> begun = workers[r]->begun;
      std::erase_if(begun, [&](std::uint32_t task) { return is_message(step.of_rank[r].tasks[task].op); });
      EXPECT_TRUE(std::is_sorted(begun.begin(), begun.end())) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::schedules
