// Needs a GPU: the Device contract on CUDA.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::core {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device = make_cuda_device(0, 0);
  }
  std::unique_ptr<Device> device;
};

TEST_F(CudaDeviceTest, InventoryDescribesIt) {
  const CudaDeviceInfo info = cuda_devices().front();
  EXPECT_EQ(info.name, device->name());
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_EQ(info.pci_id.size(), std::string("0000:1b:00.0").size());
  EXPECT_GE(info.compute_capability, 50);
  EXPECT_TRUE(cuda_can_reach(0, 0));
}

// Around the staging blocks of 4 MiB: less than one, one, one and a bit, three and a bit.
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
  device->release(a);
  EXPECT_EQ(device->peak_bytes(), 1001U);
}

TEST_F(CudaDeviceTest, TooLargeAnAllocationSaysWhatIsFreeAndLeavesTheDeviceUsable) {
  try {
    device->allocate(std::size_t{1} << 46);
    FAIL() << "was given 64 TiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure(), Failure::cuda);
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
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

}  // namespace
}  // namespace lockstep::core
