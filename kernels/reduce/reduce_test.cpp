#include "kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace lockstep::kernels {
namespace {

using core::DType;
using core::ReduceOp;

constexpr std::size_t kGuard = 64;
constexpr std::byte kSentinel{0xA5};

// Buffers of small numbers of the type, at an odd element offset, between sentinels.
struct Buffers {
  std::vector<std::vector<std::byte>> storage;
  std::vector<void*> pointers;
};

Buffers make_buffers(std::size_t number, std::size_t size_bytes, std::size_t shift_bytes) {
  Buffers result;
  for (std::size_t b = 0; b < number; ++b) {
    result.storage.emplace_back(size_bytes + shift_bytes + 2 * kGuard, kSentinel);
    result.pointers.push_back(result.storage.back().data() + kGuard + shift_bytes);
  }
  return result;
}

// Powers of two near one: exact in every type and operation for a few sources.
void fill(DType dtype, void* data, std::size_t count, std::mt19937& random) {
  static constexpr std::array kFloatValues{1.0F, 2.0F, -1.0F, 0.5F};
  for (std::size_t i = 0; i < count; ++i) {
    const float value = kFloatValues[random() % kFloatValues.size()];
    switch (dtype) {
      case DType::f32:
        std::memcpy(static_cast<float*>(data) + i, &value, 4);
        break;
      case DType::f64: {
        const double wide = value;
        std::memcpy(static_cast<double*>(data) + i, &wide, 8);
        break;
      }
      case DType::f16:
        static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(random() % 3 == 0 ? 0xBC00 : 0x3C00);
        break;
      case DType::bf16:
        static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(random() % 3 == 0 ? 0xBF80 : 0x3F80);
        break;
      case DType::f8e4m3:
        static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(random() % 3 == 0 ? 0xB8 : 0x38);
        break;
      case DType::f8e5m2:
        static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(random() % 3 == 0 ? 0xBC : 0x3C);
        break;
      default: {
        const std::size_t width = core::size_of(dtype);
        for (std::size_t b = 0; b < width; ++b) {
          static_cast<std::uint8_t*>(data)[i * width + b] = static_cast<std::uint8_t>(random());
        }
      }
    }
  }
}

void expect_guards(const Buffers& buffers, std::size_t size_bytes, std::size_t shift_bytes) {
  for (const auto& bytes : buffers.storage) {
    for (std::size_t i = 0; i < kGuard + shift_bytes; ++i) ASSERT_EQ(bytes[i], kSentinel) << "before the operand";
    for (std::size_t i = kGuard + shift_bytes + size_bytes; i < bytes.size(); ++i) {
      ASSERT_EQ(bytes[i], kSentinel) << "after the operand";
    }
  }
}

struct Shape {
  std::size_t count;
  std::size_t sources;
  std::size_t destinations;
  bool bypass_cache;
};

// Plain loops over the scalar operations.
void reduce_reference(const ReduceArgs& args) {
  const auto count = static_cast<std::size_t>(args.count);
  const std::size_t size_bytes = count * core::size_of(args.dtype);
  void* first = args.destinations[0];
  std::memmove(first, args.sources[0], size_bytes);
  for (std::size_t k = 1; k < args.sources.size(); ++k) {
    core::reduce_scalar(args.dtype, args.op, first, first, args.sources[k], count);
  }
  if (args.average_over > 0) core::finish_average(args.dtype, first, count, args.average_over);
  for (void* destination : args.destinations.subspan(1)) std::memcpy(destination, first, size_bytes);
}

void compare(DType dtype, ReduceOp op, const Shape& shape, std::mt19937& random) {
  const std::size_t width = core::size_of(dtype);
  const std::size_t size_bytes = shape.count * width;
  Buffers sources = make_buffers(shape.sources, size_bytes, width);
  for (void* source : sources.pointers) fill(dtype, source, shape.count, random);
  Buffers fast = make_buffers(shape.destinations, size_bytes, width * 3);
  Buffers slow = make_buffers(1, size_bytes, 0);
  const std::vector<const void*> reads(sources.pointers.begin(), sources.pointers.end());
  const int average_over = op == ReduceOp::avg ? static_cast<int>(shape.sources) : 0;
  const auto count = static_cast<std::int64_t>(shape.count);
  reduce({dtype, op, fast.pointers, reads, count, average_over, shape.bypass_cache});
  reduce_reference({dtype, op, slow.pointers, reads, count, average_over});
  for (void* result : fast.pointers) {
    ASSERT_EQ(std::memcmp(result, slow.pointers[0], size_bytes), 0)
        << core::name_of(dtype) << ' ' << core::name_of(op) << " count " << shape.count << " sources " << shape.sources
        << " destinations " << shape.destinations << " bypass " << shape.bypass_cache;
  }
  expect_guards(fast, size_bytes, width * 3);
}

TEST(Reduce, EqualsTheReferenceInAllTypesOperationsAndShapes) {
  std::mt19937 random(7);
  for (DType dtype : core::all_dtypes()) {
    for (ReduceOp op : core::all_reduce_ops()) {
      for (const std::size_t count : {0U, 1U, 3U, 17U, 127U, 513U, 4099U}) {
        for (const std::size_t sources : {1U, 2U, 3U, 7U}) {
          for (const std::size_t destinations : {1U, 3U}) {
            for (bool bypass : {false, true}) compare(dtype, op, {count, sources, destinations, bypass}, random);
          }
        }
      }
    }
  }
}

TEST(Reduce, AnAverageMayDivideByMoreThanTheTypeHolds) {
  std::vector<std::int8_t> a(300, 127);
  std::vector<std::int8_t> b(300, 0);
  std::vector<std::int8_t> fast(300);
  std::vector<std::int8_t> slow(300);
  const std::array<const void*, 2> sources{a.data(), b.data()};
  const std::array<void*, 1> to_fast{fast.data()};
  const std::array<void*, 1> to_slow{slow.data()};
  reduce({DType::i8, ReduceOp::avg, to_fast, sources, 300, 128});
  reduce_reference({DType::i8, ReduceOp::avg, to_slow, sources, 300, 128});
  EXPECT_EQ(fast, slow);
  EXPECT_EQ(fast.front(), 0);
}

TEST(Reduce, DestinationMayBeASource) {
  std::mt19937 random(3);
  std::vector<float> a(1000);
  std::vector<float> b(1000);
  fill(DType::f32, a.data(), a.size(), random);
  fill(DType::f32, b.data(), b.size(), random);
  std::vector<float> expected(1000);
  for (std::size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + b[i];
  const std::array<void*, 1> destinations{a.data()};
  const std::array<const void*, 2> sources{a.data(), b.data()};
  reduce({DType::f32, ReduceOp::sum, destinations, sources, 1000});
  EXPECT_EQ(a, expected);
}

}  // namespace
}  // namespace lockstep::kernels
