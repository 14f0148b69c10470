#include "trainer/worker/queue_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/device_cpu.h"

namespace lockstep::trainer {
namespace {

constexpr auto kPause = std::chrono::milliseconds(2);
constexpr std::int64_t kPausePs = 2'000'000'000;

TEST(QueueTimes, TasksOfAStepAreTimedFromItsStart) {
  const auto device = core::make_cpu_device();
  const auto queue = device->make_stream();
  QueueTimes times(*device, queue.get(), {queue.get(), queue.get()});
  times.begin_step();
  std::this_thread::sleep_for(kPause);
  times.begin(1);
  std::this_thread::sleep_for(kPause);
  times.end(1);
  EXPECT_FALSE(times.timed(0));
  ASSERT_TRUE(times.timed(1));
  EXPECT_GE(times.span_of(1).start_ps, kPausePs);
  EXPECT_GE(times.span_of(1).end_ps, times.span_of(1).start_ps + kPausePs);
  times.begin_step();
  EXPECT_FALSE(times.timed(1)) << "that was the step before";
}

TEST(QueueTimes, WithoutAQueueNothingIsTimed) {
  const auto device = core::make_cpu_device();
  QueueTimes times(*device, nullptr, {});
  times.begin_step();
  times.begin(0);
  times.end(0);
  EXPECT_FALSE(times.timed(0));
}

}  // namespace
}  // namespace lockstep::trainer
