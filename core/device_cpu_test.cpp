#include "core/device_cpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "core/error.h"

namespace lockstep::core {
namespace {

TEST(CpuDevice, CountsBytesAndRemembersThePeak) {
  const auto device = make_cpu_device();
  void* a = device->allocate(1000);
  void* b = device->allocate(500);
  EXPECT_EQ(device->allocated_bytes(), 1500U);
  device->release(a);
  EXPECT_EQ(device->allocated_bytes(), 500U);
  EXPECT_EQ(device->peak_bytes(), 1500U);
  void* c = device->allocate(100);
  EXPECT_EQ(device->peak_bytes(), 1500U);
  device->release(b);
  device->release(c);
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(CpuDevice, MemoryIsAlignedZeroedAndWritableToItsLastByte) {
  const auto device = make_cpu_device();
  for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, (std::size_t{4} << 20) - 1,
                                       std::size_t{4} << 20, (std::size_t{6} << 20) + 3}) {
    auto* memory = static_cast<unsigned char*>(device->allocate(size_bytes));
    ASSERT_NE(memory, nullptr) << size_bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 128, 0U) << size_bytes;
    EXPECT_EQ(std::accumulate(memory, memory + size_bytes, 0), 0) << size_bytes;
    std::memset(memory, 255, size_bytes);
    device->release(memory);
  }
}

TEST(CpuDevice, LargeBlocksBeginWhereHugePagesDo) {
  const auto device = make_cpu_device();
  for (int i = 0; i < 5; ++i) {
    void* memory = device->allocate((std::size_t{4} << 20) + static_cast<std::size_t>(i) * 12345);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (std::size_t{2} << 20), 0U);
  }
}

TEST(CpuDevice, RefusesMoreThanThereIs) {
  const auto device = make_cpu_device();
  const std::size_t too_much = available_host_bytes() + (std::size_t{1} << 40);
  try {
    device->allocate(too_much);
    FAIL() << "was given " << too_much << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure(), Failure::usage);
    EXPECT_NE(std::string(error.what()).find(std::to_string(too_much)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("are available"), std::string::npos) << error.what();
  }
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(CpuDevice, ReleasingForeignMemoryIsABug) {
  const auto device = make_cpu_device();
  int mine = 0;
  EXPECT_THROW(device->release(&mine), Error);
  void* memory = device->allocate(8);
  device->release(memory);
  EXPECT_THROW(device->release(memory), Error);
}

TEST(CpuDevice, TakesFromItsAllocatorAndGivesAllBack) {
  std::vector<std::byte> region(4096);
  std::map<void*, std::size_t> out;
  std::size_t used = 0;
  HostAllocator allocator{.allocate =
                              [&](std::size_t size_bytes) {
                                void* memory = region.data() + used;
                                used += size_bytes;
                                out[memory] = size_bytes;
                                return memory;
                              },
                          .release =
                              [&](void* memory, std::size_t size_bytes) {
                                EXPECT_EQ(out.at(memory), size_bytes);
                                out.erase(memory);
                              }};
  {
    const auto device = make_cpu_device(allocator);
    EXPECT_EQ(device->allocate(128), region.data());
    void* second = device->allocate(256);
    device->allocate(512);
    device->release(second);
    EXPECT_EQ(out.size(), 2U);
  }
  EXPECT_TRUE(out.empty());
}

TEST(CpuDevice, CopiesBothWaysAndNothingFromNowhere) {
  const auto device = make_cpu_device();
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 7);
  const std::size_t size_bytes = numbers.size() * sizeof(int);
  void* memory = device->allocate(size_bytes);
  device->copy_to_device(memory, numbers.data(), size_bytes);
  std::vector<int> back(numbers.size());
  device->copy_to_host(back.data(), memory, size_bytes);
  EXPECT_EQ(back, numbers);
  device->copy_to_host(nullptr, nullptr, 0);
}

TEST(CpuDevice, EventsTakeTheTimeBetweenThem) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  const auto start = device->make_event();
  const auto end = device->make_event();
  start->record(*stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end->record(*stream);
  stream->synchronize();
  EXPECT_TRUE(stream->done());
  EXPECT_GE(end->us_since(*start), 5000.0);
  EXPECT_EQ(end->us_since(*start), -start->us_since(*end));
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = make_cpu_device();
  EXPECT_FALSE(device->name().empty());
  EXPECT_TRUE(device->is_host_memory());
  EXPECT_EQ(device->index(), 0);
}

}  // namespace
}  // namespace lockstep::core
