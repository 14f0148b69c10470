// Pairs of vectors: checks that loads, stores and tails move every element and no other, and round as
// core/dtype.h does, on every instruction set that this machine supports.
#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/base/kernel_case.h"
#include "kernels/base/view.h"
#include "testing/kernels/kernel_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/base/vector_io_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Converts elements to floats in order; `other` fills the lanes past the end. `to` has room for whole pairs.
template <class T>
void widen_elems(const T* from, float* to, std::size_t count, float other) {
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    store_in_order<T>(part.or_else(part.load(from + i), hn::Set(F32(), other)), to + i);
  });
}

// Converts floats in order to elements; there are whole pairs of floats.
template <class T>
void narrow_elems(const float* from, T* to, std::size_t count) {
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR { part.store(load_in_order<T>(from + i), to + i); });
}

// Stores whole pairs with non-temporal stores.
template <class T>
void stream_elems(const float* from, T* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += pair_elems()) stream_pair(load_in_order<T>(from + i), to + i);
  hwy::FlushStream();
}

// Stores whole pairs of numbers.
template <class T>
void narrow_numbers_of(const float* from, T* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += pair_elems()) store_numbers(load_in_order<T>(from + i), to + i);
}

// Converts there and back by single vectors.
template <class T>
void copy_elems(const T* from, T* to, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(load(from + i), to + i);
  if (i < count) store_tail(load_tail(from + i, count - i), to + i, count - i);
}

void widen(core::DType dtype, const void* from, float* to, std::size_t count, float other) {
  with_activation_type(dtype,
                       [&](auto zero) { widen_elems(static_cast<const decltype(zero)*>(from), to, count, other); });
}
void narrow(core::DType dtype, const float* from, void* to, std::size_t count) {
  with_activation_type(dtype, [&](auto zero) { narrow_elems(from, static_cast<decltype(zero)*>(to), count); });
}
void stream(core::DType dtype, const float* from, void* to, std::size_t count) {
  with_activation_type(dtype, [&](auto zero) { stream_elems(from, static_cast<decltype(zero)*>(to), count); });
}
void narrow_numbers(core::DType dtype, const float* from, void* to, std::size_t count) {
  with_activation_type(dtype, [&](auto zero) { narrow_numbers_of(from, static_cast<decltype(zero)*>(to), count); });
}
void copy(core::DType dtype, const void* from, void* to, std::size_t count) {
  with_activation_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    copy_elems(static_cast<const T*>(from), static_cast<T*>(to), count);
  });
}

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
HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(stream);
HWY_EXPORT(narrow_numbers);
HWY_EXPORT(copy);

constexpr std::size_t kMostElems = 128;  // a multiple of every target's pair
constexpr auto kUntouched = std::byte{0x5A};

// An array of elements, and the data before and after it. `misalign` is in elements.
class Elements {
 public:
  Elements(core::DType dtype, std::size_t misalign)
      : dtype_(dtype), offset_(kMostElems + misalign), bytes_(3 * kMostElems * core::size_of(dtype), kUntouched) {}
  std::byte* data() { return bytes_.data() + offset_ * core::size_of(dtype_); }
  bool untouched_but_for(std::size_t count) {
    const std::byte* first = bytes_.data();
    const std::byte* begin = data();
    const std::byte* end = begin + count * core::size_of(dtype_);
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    return std::all_of(first, begin, untouched) && std::all_of(end, first + bytes_.size(), untouched);
  }
  std::vector<double> values(std::size_t count) { return load(dtype_, data(), static_cast<std::int64_t>(count)); }

 private:
  core::DType dtype_;
  std::size_t offset_;
  std::vector<std::byte> bytes_;
};

// Floats with random bits, including NaN and infinity, as doubles.
std::vector<double> any_floats(std::size_t count, std::uint64_t seed) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(core::hash64(seed, i))));
  }
  return values;
}

void expect_same(const std::vector<double>& got, const std::vector<double>& wanted, const std::string& where) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool same = std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == wanted[i];
    EXPECT_TRUE(same) << where << " [" << i << "] is " << got[i] << ", should be " << wanted[i];
  }
}

template <class Check>
void on_each_dtype_and_count(const Check& check) {
  on_each_target([&](const std::string& target) {
    for (core::DType dtype : kActivationDTypes) {
      for (std::size_t count = 1; count <= kMostElems; ++count) {
        check(dtype, count, target + " " + std::string(short_name_of(dtype)) + " " + std::to_string(count));
      }
    }
  });
}

TEST(VectorIo, LoadsWidenEachElementInOrder) {
  on_each_dtype_and_count([](core::DType dtype, std::size_t count, const std::string& where) {
    Elements elements(dtype, count % 5);
    store(any_floats(count, count), dtype, elements.data());
    std::vector<double> wanted = elements.values(count);
    std::vector<float> floats(kMostElems, 7.0F);
    HWY_DYNAMIC_DISPATCH(widen)(dtype, elements.data(), floats.data(), count, 7.0F);
    wanted.resize(kMostElems, 7.0);
    expect_same(std::vector<double>(floats.begin(), floats.end()), wanted, where);
  });
}

TEST(VectorIo, StoresRoundEachElementAndTouchNoOther) {
  on_each_dtype_and_count([](core::DType dtype, std::size_t count, const std::string& where) {
    const std::vector<double> drawn = any_floats(kMostElems, count);
    const std::vector<float> floats(drawn.begin(), drawn.end());
    Elements elements(dtype, count % 5);
    HWY_DYNAMIC_DISPATCH(narrow)(dtype, floats.data(), elements.data(), count);
    Elements wanted(dtype, 0);
    store({drawn.data(), count}, dtype, wanted.data());
    expect_same(elements.values(count), wanted.values(count), where);
    EXPECT_TRUE(elements.untouched_but_for(count)) << where;
  });
}

TEST(VectorIo, SingleVectorsCopyEachElementAndTouchNoOther) {
  on_each_dtype_and_count([](core::DType dtype, std::size_t count, const std::string& where) {
    Elements from(dtype, count % 5);
    store(any_floats(count, count), dtype, from.data());
    Elements to(dtype, count % 3);
    HWY_DYNAMIC_DISPATCH(copy)(dtype, from.data(), to.data(), count);
    expect_same(to.values(count), from.values(count), where);
    EXPECT_TRUE(to.untouched_but_for(count)) << where;
  });
}

TEST(VectorIo, NumbersAndNaNOfNarrowFloatsAreStoredAsAll) {
  on_each_target([](const std::string& target) {
    for (core::DType dtype : kActivationDTypes) {
      const std::vector<double> drawn = any_floats(kMostElems, 2);
      std::vector<float> floats(drawn.begin(), drawn.end());
      for (float& value : floats) {
        if (std::isnan(value)) value = 1;
      }
      std::size_t place = 0;
      for (std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fff0000u, 0xffff0000u, 0x7f810000u, 0x7fc00000u,
                                 0x7f7fffffu, 0x3f808000u, 0x3f818000u, 0x00000001u, 0x80008000u}) {
        floats[place++] = std::bit_cast<float>(bits);
      }
      Elements numbers(dtype, 1);
      HWY_DYNAMIC_DISPATCH(narrow_numbers)(dtype, floats.data(), numbers.data(), kMostElems);
      Elements all(dtype, 1);
      HWY_DYNAMIC_DISPATCH(narrow)(dtype, floats.data(), all.data(), kMostElems);
      expect_same(numbers.values(kMostElems), all.values(kMostElems), target + " " + std::string(short_name_of(dtype)));
    }
  });
}

TEST(VectorIo, StreamsAreStores) {
  on_each_target([](const std::string& target) {
    for (core::DType dtype : kActivationDTypes) {
      const std::vector<double> drawn = any_floats(kMostElems, 1);
      const std::vector<float> floats(drawn.begin(), drawn.end());
      alignas(128) std::array<std::byte, kMostElems * sizeof(float)> streamed{};
      std::array<std::byte, kMostElems * sizeof(float)> stored{};
      HWY_DYNAMIC_DISPATCH(stream)(dtype, floats.data(), streamed.data(), kMostElems);
      HWY_DYNAMIC_DISPATCH(narrow)(dtype, floats.data(), stored.data(), kMostElems);
      EXPECT_EQ(streamed, stored) << target << " " << short_name_of(dtype);
    }
  });
}

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
