#include "kernels/cast/cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/base/view.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;

constexpr std::array kFloatDTypes{DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2};

TEST(Cast, CasesHoldOnTheCpu) {
  for (const KernelCase& kernel_case : cast_test_cases()) EXPECT_EQ(cpu_errors(kernel_case), "");
}

float widened(float x) {
  return x;
}
template <class T>
float widened(T x) {
  return core::to_float(x);
}
void narrow(float x, float& to) {
  to = x;
}
void narrow(float x, core::BFloat16& to) {
  to = core::to_bfloat16(x);
}
void narrow(float x, core::Float16& to) {
  to = core::to_float16(x);
}
void narrow(float x, core::Float8E4M3& to) {
  to = core::to_float8_e4m3(x);
}
void narrow(float x, core::Float8E5M2& to) {
  to = core::to_float8_e5m2(x);
}

// All numbers of narrow dtypes; for f32, those around every possible tie: each upper half with lower halves near 0, one
// half and one.
std::vector<float> inputs(float /*zero*/) {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (std::uint32_t lower : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return all;
}
template <class T>
std::vector<T> inputs(T /*zero*/) {
  std::vector<T> all;
  for (std::uint32_t bits = 0; bits < 1u << (8 * sizeof(T)); ++bits) {
    all.push_back({static_cast<decltype(T::bits)>(bits)});
  }
  return all;
}

template <class From, class To>
std::string first_difference(DType from, DType to, float scale) {
  const std::vector<From> x = inputs(From{});
  std::vector<To> y(x.size());
  const auto count = static_cast<std::int64_t>(x.size());
  ThreadPool pool(1);
  run(Cast{count, from, to, scale, {x.data(), from, count}, {y.data(), to, count}}, Context(pool));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float product = widened(x[i]) * scale;
    To wanted{};
    narrow(product, wanted);
    const float got_value = widened(y[i]);
    const float wanted_value = widened(wanted);
    const bool same = std::isnan(wanted_value)
                          ? std::isnan(got_value)
                          : std::bit_cast<std::uint32_t>(got_value) == std::bit_cast<std::uint32_t>(wanted_value);
    if (!same) {
      return std::string(core::name_of(from)) + " to " + std::string(core::name_of(to)) + ": " +
             std::to_string(widened(x[i])) + " becomes " + std::to_string(got_value) + ", should be " +
             std::to_string(wanted_value);
    }
  }
  return "";
}

TEST(Cast, IsThatOfNarrowFloatForAllNumbersOnEachInstructionSet) {
  on_each_target([](const std::string& target) {
    for (DType from : kFloatDTypes) {
      for (DType to : kFloatDTypes) {
        with_float_type(from, [&](auto x) {
          with_float_type(to, [&](auto y) {
            for (float scale : {1.0F, 0.3F, 4096.0F}) {
              EXPECT_EQ((first_difference<decltype(x), decltype(y)>(from, to, scale)), "") << target << ' ' << scale;
            }
          });
        });
      }
    }
  });
}

// Outputs larger than the caches are written with non-temporal stores: the same bits as in small parts, and nothing
// else.
template <class To>
void expect_large_as_small(DType to, std::size_t misalign) {
  constexpr std::size_t kCount = (std::size_t{8} << 20) + 13;
  constexpr std::size_t kPart = 50000;
  constexpr std::size_t kRoom = 64;
  std::vector<float> x(kCount);
  for (std::size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 4093) * 0.07F - 100;
  std::vector<To> large(kCount + kRoom, To{});
  std::vector<To> small(kCount + kRoom, To{});
  ThreadPool pool(2);
  const auto convert = [&](std::size_t begin, std::size_t elems, To* y) {
    const auto count = static_cast<std::int64_t>(elems);
    run(Cast{count, DType::f32, to, 1, {x.data() + begin, DType::f32, count}, {y + begin, to, count}}, Context(pool));
  };
  convert(0, kCount, large.data() + misalign);
  for (std::size_t i = 0; i < kCount; i += kPart) convert(i, std::min(kPart, kCount - i), small.data() + misalign);
  EXPECT_EQ(std::memcmp(large.data(), small.data(), large.size() * sizeof(To)), 0) << core::name_of(to) << misalign;
}

TEST(Cast, LargeOutputsAreAsSmallOnes) {
  for (std::size_t misalign : {0UL, 1UL, 31UL}) {
    expect_large_as_small<float>(DType::f32, misalign);
    expect_large_as_small<core::BFloat16>(DType::bf16, misalign);
    expect_large_as_small<core::Float16>(DType::f16, misalign);
    expect_large_as_small<core::Float8E4M3>(DType::f8e4m3, misalign);
  }
}

TEST(Cast, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal(Cast{.count = 0, .from = DType::f32, .to = DType::bf16}), "cast: count is 0; allowed: at least 1");
  EXPECT_EQ(refusal(Cast{.count = 1, .from = DType::i32, .to = DType::bf16}),
            "cast: from is int32; allowed: half, float, bfloat16, f8e4m3, f8e5m2");
  EXPECT_EQ(refusal(Cast{.count = 1, .from = DType::f32, .to = DType::f64}),
            "cast: to is double; allowed: half, float, bfloat16, f8e4m3, f8e5m2");
  EXPECT_EQ(refusal(Cast{.count = 1, .from = DType::f32, .to = DType::f16, .scale = INFINITY}),
            "cast: scale is inf; allowed: finite numbers");
}

}  // namespace
}  // namespace lockstep::kernels
