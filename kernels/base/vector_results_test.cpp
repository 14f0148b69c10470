// Stores of results: rounds to nearest, ties to the larger magnitude, the same in whole pairs, streams and tails.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/base/case_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/base/vector_results_test.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include <hwy/cache_control.h>

#include "kernels/base/vector_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using core::BFloat16;

void stored(const float* from, BFloat16* to, std::size_t count) {
  for_pairs<BFloat16>(count, [&](std::size_t i, auto part) HWY_ATTR {
    Pair value = load_in_order<BFloat16>(from + i);
    store_result(part, value, to + i);
  });
}
void streamed(const float* from, BFloat16* to, std::size_t count) {
  for_pairs<BFloat16>(count, [&](std::size_t i, auto part) HWY_ATTR {
    Pair value = load_in_order<BFloat16>(from + i);
    stream_result(part, value, to + i);
  });
  hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(stored);
HWY_EXPORT(streamed);

using core::BFloat16;
constexpr std::size_t kElems = 64;  // a multiple of every target's pair

struct Results {
  alignas(64) BFloat16 elems[kElems];
};
Results results_of(const std::vector<float>& values, std::size_t count, bool stream) {
  Results results;
  for (BFloat16& elem : results.elems) elem.bits = 0x5A5A;
  if (stream) {
    HWY_DYNAMIC_DISPATCH(streamed)(values.data(), results.elems, count);
  } else {
    HWY_DYNAMIC_DISPATCH(stored)(values.data(), results.elems, count);
  }
  return results;
}

// Rounds by magnitude: adds half a unit and truncates below a unit.
std::uint16_t wanted_bits(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16);
}

std::vector<float> drawn_floats(std::uint64_t seed, bool with_halves) {
  std::vector<float> values(kElems);
  for (std::size_t i = 0; i < kElems; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(core::hash64(seed, i)));
    values[i] = std::isnan(value) ? 1.0F : value;
  }
  values[0] = with_halves ? 1.0F + 0x1p-8F : 1.0F;  // a tie whose lower neighbour is even
  values[1] = -values[0];
  values[2] = std::numeric_limits<float>::infinity();
  values[3] = std::numeric_limits<float>::max();
  values[4] = -0.0F;
  return values;
}

TEST(VectorResults, AreTheNearestInPairsStreamsAndTails) {
  on_each_target([](const std::string& target) {
    for (std::size_t count = 1; count <= kElems; ++count) {
      const std::vector<float> values = drawn_floats(count, target != "SCALAR");
      for (bool stream : {false, true}) {
        const Results results = results_of(values, count, stream);
        for (std::size_t i = 0; i < kElems; ++i) {
          const std::uint16_t wanted = i < count ? wanted_bits(values[i]) : std::uint16_t{0x5A5A};
          ASSERT_EQ(results.elems[i].bits, wanted) << target << " " << count << " [" << i << "] " << values[i];
        }
      }
    }
  });
}

TEST(VectorResults, KeepTheNaNOfTheProcessorAndOfBFloat16) {
  on_each_target([](const std::string& target) {
    for (std::uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7fff0000U, 0xffff0000U, 0x7f810000U}) {
      const std::vector<float> values(kElems, std::bit_cast<float>(bits));
      for (std::size_t count : {std::size_t{3}, kElems}) {
        const Results results = results_of(values, count, false);
        for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(std::isnan(to_float(results.elems[i]))) << target;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
#endif  // HWY_ONCE
