#include "trainer/worker/stage_transfers.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/device.h"
#include "testing/core/fixtures.h"
#include "trainer/worker/lanes.h"

namespace lockstep::trainer {
namespace {

using parallel::Tensor;
using schedules::Lane;
using schedules::Op;

schedules::RankStep tasks_of(const std::vector<std::pair<Op, std::int32_t>>& copies) {
  schedules::RankStep rank;
  for (const auto& [op, part] : copies) {
    rank.tasks.push_back({.op = op,
                          .lane = Lane::copy,
                          .what = static_cast<std::uint32_t>(schedules::Copied::activations),
                          .stage = 0,
                          .microbatch = 0,
                          .part = part});
  }
  return rank;
}

using workload::CopySlots;
using workload::slots_of_copies;

TEST(CopySlots, AreFreeAgainWhenWhatTheyHadIsBack) {
  const auto rank = tasks_of({{Op::offload, 0},
                              {Op::offload, 1},
                              {Op::load, 1},
                              {Op::offload, 2},
                              {Op::offload, 3},
                              {Op::load, 3},
                              {Op::load, 2},
                              {Op::load, 0}});
  const CopySlots places = slots_of_copies(rank, {5000, 5000, 5000, 5001, 100, 100, 5001, 5000});
  std::vector<std::int64_t> offsets;
  for (const auto& place : places.of_task) offsets.push_back(place.offset);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 8192, 8192, 8192, 16384, 16384, 8192, 0}));
  EXPECT_EQ(places.room_bytes, 16384 + 4096);
  EXPECT_EQ(slots_of_copies(rank, std::vector<std::int64_t>(8)).room_bytes, 0) << "nothing is kept";
  EXPECT_THROW(slots_of_copies(tasks_of({{Op::offload, 0}}), {1}), core::Error) << "it never comes back";
}

// More bytes than there are blocks for, in tensors of odd sizes, of which some are not given.
TEST(ActivationCopies, BringBackWhatTheyTook) {
  const core::TemporaryFolder folder;
  const auto device = core::make_cpu_device();
  for (const bool in_file : {false, true}) {
    parallel::Memory memory(*device);
    std::vector<std::int64_t> sizes{3, 1, (std::int64_t{5} << 20) + 7, 0, 4096, (std::int64_t{6} << 20) + 1};
    const std::int64_t bytes = 2 * std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const auto rank = tasks_of({{Op::offload, 0}, {Op::offload, 1}, {Op::load, 1}, {Op::load, 0}});
    ActivationCopies copies(
        memory,
        in_file ? parallel::rooms_in_files(folder.path(), std::chrono::seconds(10)) : parallel::rooms_of_host(*device),
        slots_of_copies(rank, {bytes, bytes, bytes, bytes}));
    std::vector<std::vector<Tensor>> parts(2);
    std::vector<std::vector<Tensor*>> kept(2);
    for (std::size_t part = 0; part < 2; ++part) {
      for (const std::int64_t elems : sizes) {
        parts[part].push_back(memory.make(parallel::MemoryKind::activations, core::DType::bf16, elems));
        auto* const data = parts[part].back().as<std::uint16_t>();
        for (std::int64_t i = 0; i < elems; ++i)
          data[i] = static_cast<std::uint16_t>(31 * i + elems + 7 * static_cast<int>(part));
      }
      for (Tensor& tensor : parts[part]) kept[part].push_back(&tensor);
    }
    copies.run(rank.tasks[0], 0, kept[0]);
    copies.run(rank.tasks[1], 1, kept[1]);
    EXPECT_EQ(parallel::total_of(memory.now()), 0) << "all has left";
    copies.run(rank.tasks[2], 2, kept[1]);
    copies.run(rank.tasks[3], 3, kept[0]);
    EXPECT_EQ(parallel::total_of(memory.now()), 2 * bytes);
    EXPECT_EQ(copies.moved_bytes(), 4 * bytes);
    for (std::size_t part = 0; part < 2; ++part) {
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        ASSERT_EQ(parts[part][t].elems(), sizes[t]);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < sizes[t]; ++i) {
          wrong += parts[part][t].as<std::uint16_t>()[i] !=
                   static_cast<std::uint16_t>(31 * i + sizes[t] + 7 * static_cast<int>(part));
        }
        EXPECT_EQ(wrong, 0) << "tensor " << t << (in_file ? ", file" : ", host");
      }
    }
  }
}

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
