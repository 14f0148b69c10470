// Needs a GPU: the Device contract on CUDA.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device = make_gpu_for_tests();
  }
  std::unique_ptr<Device> device;
};

TEST_F(CudaDeviceTest, InventoryDescribesIt) {
  const CudaDeviceInfo info = cuda_devices().front();
  EXPECT_EQ(info.name, device->name());
  EXPECT_EQ(device->computes(), !info.name.starts_with("stand-in")) << "a GPU's results are always compared";
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_EQ(info.pci_id.size(), std::string("0000:1b:00.0").size());
  EXPECT_GE(info.compute_capability, 50);
  EXPECT_GT(info.l2_bytes, std::size_t{1} << 20);
}

// Sizes around the staging blocks of 4 MiB: less than one, one, slightly more than one and than three.
TEST_F(CudaDeviceTest, CopiesBothWays) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1,
                                  (std::size_t{3} << 20) + 17}) {
    std::vector<int> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 11);
    void* memory = device->allocate(count * sizeof(int));
    device->copy_to_device(memory, numbers.data(), count * sizeof(int));
    std::vector<int> back(count);
    device->copy_to_host(back.data(), memory, count * sizeof(int));
    EXPECT_EQ(back, numbers) << count;
    device->release(memory);
  }
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST_F(CudaDeviceTest, AllocationsAreAlignedAndCounted) {
  void* a = device->allocate(1);
  void* b = device->allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 128, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 128, 0U);
  EXPECT_EQ(device->allocated_bytes(), 1001U);
  EXPECT_GE(device->reserved_bytes(), 1001U);
  device->release(a);
  EXPECT_EQ(device->peak_bytes(), 1001U);
}

TEST_F(CudaDeviceTest, TooLargeAnAllocationReportsWhatIsFreeAndLeavesTheDeviceUsable) {
  const Error error = thrown_by([&] { device->allocate(std::size_t{1} << 46); });
  EXPECT_EQ(error.failure(), Failure::cuda);
  EXPECT_TRUE(has(error.what(), "are free"));
  EXPECT_NE(device->allocate(256), nullptr);
}

TEST_F(CudaDeviceTest, EventsOfAnIdleStreamAreCloseTogether) {
  const auto stream = device->make_stream();
  const auto start = device->make_event();
  const auto end = device->make_event();
  start->record(*stream);
  end->record(*stream);
  end->synchronize();
  EXPECT_TRUE(stream->done());
  EXPECT_GE(end->us_since(*start), 0.0);
  EXPECT_LT(end->us_since(*start), 1e5);
}

constexpr std::size_t kLargeBytes = std::size_t{1} << 30;

// Numbers on the device, numbers that the host sees, and streams that can be kept busy.
class CudaStreamsTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped()) return;
    a = device->make_stream();
    b = device->make_stream();
    numbers = static_cast<int*>(device->allocate(2 * sizeof(int)));
    seen = static_cast<int*>(device->allocate_pinned(2 * sizeof(int)));
    large = device->allocate(kLargeBytes);
  }
  // Queues some milliseconds of work.
  void keep_busy(Stream& stream) {
    for (int i = 0; i < 20; ++i) device->zero_on(stream, large, kLargeBytes);
  }
  void write(int first, int second) {
    const std::vector<int> values{first, second};
    device->copy_to_device(numbers, values.data(), 2 * sizeof(int));
  }
  std::vector<int> read() {
    std::vector<int> values(2);
    device->copy_to_host(values.data(), numbers, 2 * sizeof(int));
    return values;
  }

  std::unique_ptr<Stream> a;
  std::unique_ptr<Stream> b;
  int* numbers = nullptr;
  int* seen = nullptr;  // pinned
  void* large = nullptr;
};

TEST_F(CudaStreamsTest, CopiesOnAStreamRunConcurrentlyWithTheHostInTheStreamsOrder) {
  write(1, 2);
  device->copy_on(*a, seen, numbers, 2 * sizeof(int));
  device->zero_on(*a, numbers, sizeof(int));
  device->copy_on(*a, numbers + 1, seen, sizeof(int));
  a->synchronize();
  EXPECT_EQ(std::vector<int>(seen, seen + 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(read(), (std::vector<int>{0, 1}));
  device->copy_on(*a, nullptr, nullptr, 0);
  device->release_pinned(seen);
  EXPECT_THROW(device->release_pinned(seen), Error);
}

TEST_F(CudaStreamsTest, AStreamWaitsForAnothersEvent) {
  write(0, 0);
  seen[0] = 7;
  const auto event = device->make_event();
  keep_busy(*a);
  device->copy_on(*a, numbers, seen, sizeof(int));
  event->record(*a);
  b->wait(*event);
  device->copy_on(*b, seen + 1, numbers, sizeof(int));
  b->synchronize();
  EXPECT_EQ(seen[1], 7);
  EXPECT_TRUE(event->done());
}

TEST_F(CudaStreamsTest, MemoryThatWorkUsesGoesToItsOwnStreamOnly) {
  void* memory = device->allocate_on(*a, kLargeBytes);
  keep_busy(*a);
  device->release_on(*a, memory);
  void* others = device->allocate_on(*b, kLargeBytes);
  EXPECT_TRUE(a->done() || others != memory);
  void* own = device->allocate_on(*a, kLargeBytes);
  EXPECT_TRUE(own == memory || others == memory);
  a->synchronize();
  device->release_on(*a, own);
  a->synchronize();
  EXPECT_EQ(device->allocate_on(*b, kLargeBytes), own);
}

TEST_F(CudaStreamsTest, ReservedMemoryIsCountedAndFreedOnRequest) {
  device->release(device->allocate(3 * kLargeBytes));
  EXPECT_EQ(device->allocated_bytes(), kLargeBytes + 2 * sizeof(int));
  EXPECT_GE(device->reserved_bytes(), 4 * kLargeBytes);
  for (Stream* stream : {a.get(), b.get()})
    stream->synchronize();  // events recorded after the last use of the memory have passed
  device->free_unused();
  EXPECT_LT(device->reserved_bytes(), 2 * kLargeBytes);
}

TEST_F(CudaStreamsTest, WhatIsKeptIsGivenBackForWhatIsNeeded) {
  const std::size_t all = cuda_devices().front().memory_bytes;
  void* memory = device->allocate_on(*a, all / 10 * 4);
  keep_busy(*a);
  device->release_on(*a, memory);
  EXPECT_NE(device->allocate(all / 10 * 7), nullptr);
}

TEST_F(CudaStreamsTest, AGraphRunsWhatWasCapturedEachTimeItIsLaunched) {
  write(1, 2);
  seen[0] = 7;
  const auto graph = capture(*a, [&] {
    device->copy_on(*a, numbers, seen, sizeof(int));
    device->copy_on(*a, numbers + 1, numbers, sizeof(int));
  });
  a->synchronize();
  EXPECT_EQ(read(), (std::vector<int>{1, 2})) << "captured work does not run";
  for (const int value : {7, 8}) {
    seen[0] = value;
    graph->launch(*a);
    a->synchronize();
    EXPECT_EQ(read(), (std::vector<int>{value, value}));
  }
  seen[0] = 9;
  graph->launch(*b);
  b->synchronize();
  EXPECT_EQ(read(), (std::vector<int>{9, 9}));
}

TEST_F(CudaStreamsTest, ACaptureTakesInStreamsThatWaitForIt) {
  write(0, 0);
  seen[0] = 7;
  const auto fork = device->make_event();
  const auto join = device->make_event();
  const auto graph = capture(*a, [&] {
    device->copy_on(*a, numbers, seen, sizeof(int));
    fork->record(*a);
    b->wait(*fork);
    device->copy_on(*b, numbers + 1, numbers, sizeof(int));
    join->record(*b);
    a->wait(*join);
  });
  graph->launch(*a);
  a->synchronize();
  EXPECT_EQ(read(), (std::vector<int>{7, 7}));
}

TEST_F(CudaStreamsTest, WhatACaptureReleasesIsTheGraphsUntilItGoes) {
  device->release(device->allocate(kLargeBytes));
  void* of_graph = nullptr;
  auto graph = capture(*a, [&] {
    of_graph = device->allocate_on(*a, kLargeBytes);
    device->zero_on(*a, of_graph, kLargeBytes);
    device->release_on(*a, of_graph);
  });
  EXPECT_NE(device->allocate(kLargeBytes), of_graph);
  graph->launch(*a);
  graph.reset();
  a->synchronize();
  EXPECT_EQ(device->allocate(kLargeBytes), of_graph);
}

TEST_F(CudaStreamsTest, ACaptureTakesTheMemoryThatItNeeds) {
  const std::size_t before = device->reserved_bytes();
  const auto graph = capture(*a, [&] {
    void* const memory = device->allocate_on(*a, 5 * kLargeBytes);
    device->zero_on(*a, memory, 5 * kLargeBytes);
    device->release_on(*a, memory);
  });
  EXPECT_GE(device->reserved_bytes(), before + 5 * kLargeBytes);
  graph->launch(*a);
  a->synchronize();
}

TEST_F(CudaStreamsTest, TimesInAGraphAreThoseOfItsLatestLaunch) {
  const auto begin = device->make_event();
  const auto end = device->make_event();
  const auto graph = capture(*a, [&] {
    begin->record_time(*a);
    keep_busy(*a);
    end->record_time(*a);
  });
  for (int launch = 0; launch < 2; ++launch) {
    graph->launch(*a);
    a->synchronize();
    EXPECT_GT(end->us_since(*begin), 0);
  }
}

TEST_F(CudaStreamsTest, ACaptureThatFailsReportsWhyAndLeavesTheStreamUsable) {
  EXPECT_THROW(capture(*a, [] { throw std::out_of_range("the work's"); }), std::out_of_range);
  const std::size_t too_much = 2 * cuda_devices().front().memory_bytes;
  const Error error = thrown_by([&] { capture(*a, [&] { device->allocate_on(*a, too_much); }); });
  EXPECT_TRUE(has(error.what(), "rank 0, CUDA device 0"));
  EXPECT_TRUE(has(error.what(), "captured work"));
  seen[0] = 3;
  device->copy_on(*a, numbers, seen, sizeof(int));
  a->synchronize();
  EXPECT_EQ(read().front(), 3);
}

}  // namespace
}  // namespace lockstep::core
