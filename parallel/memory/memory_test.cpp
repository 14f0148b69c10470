#include "parallel/memory/memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/device_cpu.h"

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

}  // namespace
}  // namespace lockstep::parallel
