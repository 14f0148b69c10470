#include "parallel/memory/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/device.h"
#include "testing/core/forwarding_device.h"
#include "testing/core/refusal.h"

namespace lockstep::parallel {
namespace {

using core::DType;

std::int64_t bytes(const BytesByKind& by_kind, MemoryKind kind) {
  return by_kind[static_cast<std::size_t>(kind)];
}

class MemoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<core::Device> device_ = core::make_cpu_device();
  Memory memory_{*device_};
};

TEST_F(MemoryTest, CountsWhatTensorsAskedForByKind) {
  const Tensor weights = memory_.make(MemoryKind::weights, DType::bf16, 1001);
  {
    const Tensor gradient = memory_.make(MemoryKind::gradients, DType::f32, 7);
    EXPECT_EQ(bytes(memory_.now(), MemoryKind::weights), 2002);
    EXPECT_EQ(bytes(memory_.now(), MemoryKind::gradients), 28);
  }
  EXPECT_EQ(total_of(memory_.now()), 2002);
  EXPECT_EQ(bytes(memory_.peak_of_each(), MemoryKind::gradients), 28);
}

TEST_F(MemoryTest, ThePeakOfAllIsNotTheSumOfPeaks) {
  { const Tensor first = memory_.make(MemoryKind::activations, DType::f32, 100); }
  const Tensor second = memory_.make(MemoryKind::buffers, DType::f32, 60);
  EXPECT_EQ(total_of(memory_.peak_of_each()), 640);
  EXPECT_EQ(total_of(memory_.at_peak()), 400);
  EXPECT_EQ(bytes(memory_.at_peak(), MemoryKind::buffers), 0);
  memory_.restart_peaks();
  EXPECT_EQ(total_of(memory_.at_peak()), 240);
}

std::string refusal_of(Memory& memory, std::int64_t elems) {
  return core::refusal_of([&] { memory.make(MemoryKind::activations, DType::f32, elems); });
}

TEST_F(MemoryTest, ABudgetIsNotExceeded) {
  memory_.set_budget(1 << 20);
  Tensor first = memory_.make(MemoryKind::weights, DType::f32, 1 << 17);  // 512 KiB
  EXPECT_EQ(refusal_of(memory_, (1 << 17) + 1).substr(0, 90),
            "--device-memory is 1048576 bytes, tensors use 524288 of them, and 589824 more are needed; ");
  EXPECT_EQ(refusal_of(memory_, 1 << 17), "") << "and nothing was counted of what was refused";
  first.reset();
  // All that is kept is freed for it: two blocks of half the size.
  EXPECT_EQ(refusal_of(memory_, 1 << 18), "");
  EXPECT_NE(refusal_of(memory_, (1 << 18) + 1), "");
}

// Task 2 gives up before task 1 is run here, by another thread: in the list's order both are there at once.
TEST_F(MemoryTest, TheOrderOfTasksDecidesWhatIsHeldAtOnce) {
  const Tensor always = memory_.make(MemoryKind::weights, DType::f32, 10);
  memory_.begin_tasks();
  Tensor late = memory_.make(MemoryKind::gradients, DType::f32, 100);
  std::thread lane([&] {
    memory_.work_for(2);
    late.reset();
  });
  lane.join();
  memory_.work_for(1);
  { const Tensor between = memory_.make(MemoryKind::activations, DType::f32, 60); }
  EXPECT_EQ(memory_.held_by_tasks().at_peak(), (BytesByKind{40, 400, 0, 240, 0}));
  EXPECT_EQ(total_of(memory_.at_peak()), 440) << "as it happened";
  memory_.begin_tasks();
  EXPECT_EQ(memory_.held_by_tasks().peak_of_each(), (BytesByKind{40, 0, 0, 0, 0}));
}

TEST_F(MemoryTest, BlocksAreHandedOutAgain) {
  const void* first = nullptr;
  {
    const Tensor tensor = memory_.make(MemoryKind::activations, DType::f32, 5000);
    first = tensor.data();
  }
  const Tensor again = memory_.make(MemoryKind::gradients, DType::f32, 4990);
  EXPECT_EQ(again.data(), first);
  const std::size_t held = device_->allocated_bytes();
  const Tensor other = memory_.make(MemoryKind::gradients, DType::f32, 4990);
  EXPECT_NE(other.data(), first);
  EXPECT_GT(device_->allocated_bytes(), held);
}

TEST_F(MemoryTest, ZeroedMemoryIsZeroAlsoTheSecondTime) {
  for (int round = 0; round < 2; ++round) {
    const Tensor tensor = memory_.make_zeroed(MemoryKind::gradients, DType::f32, 33);
    for (int i = 0; i < 33; ++i) ASSERT_EQ(tensor.as<float>()[i], 0.0F);
    std::memset(tensor.data(), 0x7f, 33 * sizeof(float));
  }
}

TEST_F(MemoryTest, ATensorMovesWithItsMemory) {
  Tensor a = memory_.make(MemoryKind::weights, DType::f32, 3);
  void* const data = a.data();
  Tensor b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(total_of(memory_.now()), 12);
  b = memory_.make(MemoryKind::weights, DType::f32, 2);
  EXPECT_EQ(total_of(memory_.now()), 8);
  b.reset();
  EXPECT_EQ(total_of(memory_.now()), 0);
}

TEST_F(MemoryTest, NoElementsNeedNoMemory) {
  const Tensor none = memory_.make(MemoryKind::weights, DType::f32, 0);
  EXPECT_FALSE(none.given());
  EXPECT_FALSE(none.in().given());
}

// A device whose memory is not the host's: writes down on which stream memory was asked for and released.
class WritingDevice final : public core::ForwardingDevice {
 public:
  void* allocate(std::size_t size_bytes) override { return take(nullptr, size_bytes); }
  void release(void* memory) override { give(nullptr, memory); }
  void* allocate_on(core::Stream& stream, std::size_t size_bytes) override { return take(&stream, size_bytes); }
  void release_on(core::Stream& stream, void* memory) override { give(&stream, memory); }
  void zero_on(core::Stream& stream, void* memory, std::size_t size_bytes) override {
    zeroed_on = &stream;
    ForwardingDevice::zero_on(stream, memory, size_bytes);
  }

  std::vector<const core::Stream*> taken_on;  // nullptr: for any
  std::vector<const core::Stream*> given_on;
  const core::Stream* zeroed_on = nullptr;

 private:
  void* take(const core::Stream* stream, std::size_t size_bytes) {
    taken_on.push_back(stream);
    return ForwardingDevice::allocate(size_bytes);
  }
  void give(const core::Stream* stream, void* memory) {
    given_on.push_back(stream);
    ForwardingDevice::release(memory);
  }
};

using Streams = std::vector<const core::Stream*>;

TEST(MemoryOfADevice, IsTakenAndGivenBackOnTheStreamOfTheTaskAtHand) {
  WritingDevice device;
  const auto compute = device.make_stream();
  const auto lane = device.make_stream();
  {
    Memory memory(device, compute.get());
    Tensor passed = memory.make(MemoryKind::gradients, DType::f32, 10);
    memory.work_on(lane.get());
    const Tensor lanes = memory.make(MemoryKind::buffers, DType::f32, 10);
    Tensor moved = std::move(passed);
    moved.reset();
    EXPECT_EQ(device.given_on, Streams{lane.get()});
    EXPECT_EQ(device.allocated_bytes(), 40U) << "the device keeps it, not the Memory";
    memory.work_on(compute.get());
    Tensor own = memory.make_zeroed(MemoryKind::buffers, DType::f32, 10);
    EXPECT_EQ(device.zeroed_on, compute.get());
    own.reset();
    EXPECT_EQ(total_of(memory.now()), 40);
  }
  EXPECT_EQ(device.taken_on, (Streams{compute.get(), lane.get(), compute.get()}));
  EXPECT_EQ(device.given_on, (Streams{lane.get(), compute.get(), compute.get()}));
}

TEST(MemoryOfADevice, WithoutAStreamItIsForAll) {
  WritingDevice device;
  Memory memory(device);
  Tensor tensor = memory.make_zeroed(MemoryKind::weights, DType::f32, 10);
  EXPECT_EQ(tensor.as<float>()[9], 0.0F);
  EXPECT_EQ(device.zeroed_on, nullptr);
  tensor.reset();
  EXPECT_EQ(device.taken_on, Streams{nullptr});
  EXPECT_EQ(device.given_on, Streams{nullptr});
}

}  // namespace
}  // namespace lockstep::parallel
