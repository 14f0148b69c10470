#include "collectives/executors/executors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/error.h"
#include "core/wait.h"
#include "testing/collectives/executor_cases.h"
#include "testing/core/thrown.h"

namespace lockstep::executors {
namespace {

using collectives::Operation;
using transports::LoopbackWorld;
using transports::Transport;

// Runs body on one thread per rank; a rank that throws aborts the others. Returns the first failure's text.
std::string run_ranks(LoopbackWorld& world, int num_ranks, const std::function<void(Transport&)>& body) {
  std::mutex mutex;
  std::string failure;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const auto transport = world.endpoint(rank);
        body(*transport);
      } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex);
        if (failure.empty()) failure = error.what();
        world.abort(error.what());
      }
    });
  }
  ranks.clear();
  return failure;
}

struct MessageCase {
  std::shared_ptr<const plan::Plan> plan;
  Operation operation;
  MessageOptions options = {};
};

// Runs cases in sequence on the same ranks, without a barrier in between: a case finds the state that the one before
// left.
void expect_exact(int num_ranks, const std::vector<MessageCase>& cases, int capacity) {
  LoopbackWorld world(num_ranks, capacity, std::chrono::seconds(20));
  std::vector<std::atomic<std::int64_t>> wrong(cases.size());
  const std::string failure = run_ranks(world, num_ranks, [&](Transport& transport) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const MessageCase& message_case = cases[i];
      try {
        const auto collective =
            make_message_collective(*message_case.plan, message_case.operation, transport, message_case.options);
        wrong[i] += count_wrong_results(*collective, message_case.operation, num_ranks, transport.rank());
      } catch (const core::Error& error) {
        throw core::Error(error.failure(), describe(*message_case.plan, message_case.operation) + ": " + error.what());
      }
    }
  });
  EXPECT_EQ(failure, "") << "capacity " << capacity;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(wrong[i], 0) << describe(*cases[i].plan, cases[i].operation) << ", capacity " << capacity;
  }
}

void expect_exact(const plan::Plan& plan, const Operation& operation, const MessageOptions& options, int capacity) {
  expect_exact(plan.num_ranks, {{std::make_shared<const plan::Plan>(plan), operation, options}}, capacity);
}

// Keeps the plan of the previous case, which most cases share.
class Cases {
 public:
  void add(const plan::Plan& plan, const Operation& operation, const MessageOptions& options) {
    const std::tuple key(operation.kind, plan.algorithm, operation.root);
    if (!plan_ || key != key_) plan_ = std::make_shared<const plan::Plan>(plan);
    key_ = key;
    cases_.push_back({plan_, operation, options});
  }
  const std::vector<MessageCase>& all() const { return cases_; }

 private:
  std::tuple<collectives::Kind, std::string, int> key_;
  std::shared_ptr<const plan::Plan> plan_;
  std::vector<MessageCase> cases_;
};

class MessageExecutor : public testing::TestWithParam<int> {};

TEST_P(MessageExecutor, EveryAlgorithmIsExactUnderEveryBuffering) {
  const int num_ranks = GetParam();
  std::map<int, Cases> of_capacity;
  for_each_message_case(num_ranks, [&](const auto& plan, const auto& operation, const auto& options) {
    const int capacity = operation.count == 1001 ? 0 : 1;  // rendezvous if there are segments
    of_capacity[capacity].add(plan, operation, options);
    if (operation.count == 1001 && num_ranks <= 5) of_capacity[100].add(plan, operation, options);
  });
  for (const auto& [capacity, cases] : of_capacity) expect_exact(num_ranks, cases.all(), capacity);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MessageExecutor, testing::Range(1, 10));
INSTANTIATE_TEST_SUITE_P(ManyRanks, MessageExecutor, testing::Values(17));

TEST(MessageExecutorTypes, EveryTypeAndOperationIsExact) {
  Cases cases;
  for_each_message_type(
      3, [&](const auto& plan, const auto& operation, const auto& options) { cases.add(plan, operation, options); });
  expect_exact(3, cases.all(), 1);
}

// Two ranks overwrite the data that they send: under rendezvous one rank must first receive into other memory.
TEST(MessageExecutorFlow, SwapsInPlaceUnderRendezvous) {
  plan::PlanBuilder builder(collectives::Kind::send_recv, 2, 0, 1);
  for (int rank : {0, 1}) {
    builder.send(rank, 1 - rank, plan::input(0));
    builder.recv(rank, 1 - rank, plan::output(0));
  }
  const plan::Plan plan = builder.finish("swap");
  Operation operation = make_operation(collectives::Kind::send_recv, 2, 5000);
  operation.in_place = true;
  for (int capacity : {0, 1}) expect_exact(plan, operation, {.segment_bytes = 1024}, capacity);
}

// Rank 1 receives rank 2's message first, which depends on work of rank 0 after its slot is overwritten: rank 0 must
// send from a copy.
TEST(MessageExecutorFlow, BuffersASendThatItsReceiverWantsLate) {
  plan::PlanBuilder builder(collectives::Kind::broadcast, 3, 0, 1);
  const int slot = builder.take_scratch(2);
  builder.copy(0, plan::output(0), plan::input(0));
  builder.copy(0, plan::scratch(slot), plan::input(0));
  builder.send(0, 1, plan::scratch(slot));
  builder.copy(0, plan::scratch(slot), plan::output(0));  // overwrites data in flight
  builder.send(0, 2, plan::scratch(slot));
  builder.recv(2, 0, plan::output(0));
  builder.send(2, 1, plan::output(0));
  builder.recv(1, 2, plan::scratch(slot + 1));
  builder.recv(1, 0, plan::output(0));
  const plan::Plan plan = builder.finish("late");
  for (int capacity : {0, 1}) {
    expect_exact(plan, make_operation(collectives::Kind::broadcast, 3, 5000), {.recv_window = 1}, capacity);
  }
}

plan::Plan ring(int num_ranks) {
  return make_plan(algorithms::parse_choice(collectives::Kind::all_reduce, "ring"), num_ranks, 0);
}

TEST(MessageExecutorFailures, ARankThatThrowsEndsTheOthers) {
  LoopbackWorld world(4, 1, std::chrono::seconds(20));
  const Operation operation = make_operation(collectives::Kind::all_reduce, 4, 1000);
  const auto start = core::Clock::now();
  std::atomic<int> ended{0};
  const std::string failure = run_ranks(world, 4, [&](Transport& transport) {
    const auto collective = make_message_collective(ring(4), operation, transport);
    if (transport.rank() == 2) throw core::Error(core::Failure::internal, "rank 2 has had enough");
    const core::Error error =
        core::thrown_by([&] { count_wrong_results(*collective, operation, 4, transport.rank()); });
    EXPECT_EQ(error.failure(), core::Failure::rank_lost);
    EXPECT_STREQ(error.what(), "rank 2 has had enough");
    ++ended;
  });
  EXPECT_EQ(failure, "rank 2 has had enough");
  EXPECT_EQ(ended, 3);
  EXPECT_LT(core::Clock::now() - start, std::chrono::seconds(5));
}

TEST(MessageExecutorFailures, ASilentRankEndsTheOthersAtTheDeadline) {
  LoopbackWorld world(3, 1, std::chrono::seconds(20));
  const Operation operation = make_operation(collectives::Kind::all_reduce, 3, 1000);
  std::atomic<int> timeouts{0};
  run_ranks(world, 3, [&](Transport& transport) {
    if (transport.rank() == 1) return;
    const auto collective =
        make_message_collective(ring(3), operation, transport, {.timeout = std::chrono::milliseconds(200)});
    const core::Error error =
        core::thrown_by([&] { count_wrong_results(*collective, operation, 3, transport.rank()); });
    EXPECT_EQ(error.failure(), core::Failure::timeout);
    EXPECT_TRUE(core::has(error.what(), "no message for 200 ms; waits for"));
    ++timeouts;
  });
  EXPECT_EQ(timeouts, 2);
}

TEST(MessageExecutorFailures, RefusesOptionsOfNoMeaning) {
  LoopbackWorld world(1, 1, std::chrono::seconds(1));
  const auto transport = world.endpoint(0);
  const Operation operation = make_operation(collectives::Kind::all_reduce, 1, 1);
  for (const MessageOptions& options :
       {MessageOptions{.segment_bytes = 0}, MessageOptions{.recv_window = 0}, MessageOptions{.send_window = -1}}) {
    EXPECT_THROW(make_message_collective(ring(1), operation, *transport, options), core::Error);
  }
}

}  // namespace
}  // namespace lockstep::executors
