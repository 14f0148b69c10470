#include "kernels/residual/residual.h"

#include <array>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual/residual.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kBlocks = 64;  // blocks whose words are made at a time
constexpr std::size_t kWords = 4 * kBlocks;

template <class V>
struct Counter {
  V c0;
  V c1;
  V c2;
  V c3;
};

// Swaps the halves of each 64-bit lane, by a shuffle, which runs in parallel with multiplications where a shift would
// wait for them. The scalar target, which never calls this, has no such function: it is found by argument-dependent
// lookup.
template <class V>
HWY_INLINE V swapped_halves(V value) {
  const hn::DFromV<V> d;
  const hn::Repartition<std::uint32_t, decltype(d)> du32;
  return hn::BitCast(d, Shuffle2301(hn::BitCast(du32, value)));
}

// Combines the lower halves of 64-bit lanes with lower halves placed above them.
template <class V>
HWY_INLINE V halves_of(V low, V high) {
  const hn::DFromV<V> d;
  const hn::Repartition<std::uint32_t, decltype(d)> du32;
  return hn::BitCast(d, hn::OddEven(hn::BitCast(du32, swapped_halves(high)), hn::BitCast(du32, low)));
}

// Computes words of as many blocks as a vector has 64-bit lanes, in the lanes' order of pairs of T.
template <class T, class V>
HWY_INLINE void store_words(const Counter<V>& c, std::uint32_t* words) {
  const hn::DFromV<V> d;
  auto* const to = reinterpret_cast<std::uint64_t*>(words);
  if constexpr (EvenAndOdd<T>) {
    hn::StoreU(halves_of(c.c0, c.c2), d, to);
    hn::StoreU(halves_of(c.c1, c.c3), d, to + hn::Lanes(d));
  } else {
    hn::StoreInterleaved2(halves_of(c.c0, c.c1), halves_of(c.c2, c.c3), d, to);
  }
}

// Computes the words of kBlocks blocks from `first` on, one pair of T after another. A 64-bit lane holds a word of one
// block in its lower half; the upper half is ignored, because multiplications use only lower halves. Several vectors go
// through the rounds in parallel, because each step of a round depends on the one before.
template <class T, class Words>
HWY_INLINE void make_words(const Dropout& args, std::uint64_t first, Words* words) {
  const hn::ScalableTag<Words> du32;
  const hn::Repartition<std::uint64_t, decltype(du32)> d;
  constexpr std::size_t kSideBySide = 4;
  const std::size_t lanes = hn::Lanes(d);
  const auto times = [&](auto a, std::uint32_t b)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(du32, a), hn::Set(du32, b)); };
  const auto wide = [&](std::uint32_t word) HWY_ATTR { return hn::Set(d, std::uint64_t{word}); };
  for (std::size_t block = 0; block < kBlocks; block += kSideBySide * lanes) {
    std::array<Counter<hn::Vec<decltype(d)>>, kSideBySide> counters;
    for (std::size_t k = 0; k < kSideBySide; ++k) {
      const auto number = hn::Add(hn::Set(d, first + block + k * lanes), hn::Iota(d, 0));
      counters[k] = {number, hn::ShiftRight<32>(number), wide(low_word(args.step)), wide(high_word(args.step))};
    }
    std::uint32_t key0 = low_word(args.seed);
    std::uint32_t key1 = high_word(args.seed);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const auto wide0 = wide(key0);
      const auto wide1 = wide(key1);
      for (auto& c : counters) {
        const auto product0 = times(c.c0, kPhiloxMultiplier0);
        const auto product1 = times(c.c2, kPhiloxMultiplier1);
        c = {hn::Xor3(swapped_halves(product1), c.c1, wide0), product1, hn::Xor3(swapped_halves(product0), c.c3, wide1),
             product0};
      }
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
    for (std::size_t k = 0; k < kSideBySide; ++k) store_words<T>(counters[k], words + 4 * (block + k * lanes));
  }
}

// A target with one 32-bit lane has no 64-bit lanes.
template <class T, class Words>
requires(HWY_TARGET == HWY_SCALAR) HWY_INLINE void make_words(const Dropout& args, std::uint64_t first, Words* words) {
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const auto four = philox_block(args.seed, args.step, first + block);
    for (std::size_t w = 0; w < 4; ++w) words[4 * block + w] = four[w];
  }
}

struct Rule {
  std::uint32_t threshold;
  float scale;
};

HWY_INLINE Pair kept(Pair value, const std::uint32_t* words, const Rule& rule) {
  const F32 d;
  const U32 du;
  const VF32 scale = hn::Set(d, rule.scale);
  const auto least = hn::Set(du, rule.threshold);
  const auto drop_a = hn::RebindMask(d, hn::Lt(hn::LoadU(du, words), least));
  const auto drop_b = hn::RebindMask(d, hn::Lt(hn::LoadU(du, words + lanes_f32()), least));
  return {hn::IfThenZeroElse(drop_a, hn::Mul(value.a, scale)), hn::IfThenZeroElse(drop_b, hn::Mul(value.b, scale))};
}

// `words` has the pairs from x on. y may be x. A BFloat16 NaN has a zero lower half, and keeps it.
template <class T>
HWY_INLINE void drop(const T* x, const std::uint32_t* words, const Rule& rule, std::size_t count, T* y) {
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(x + i, step * sizeof(T));
    prefetch_ahead(y + i, step * sizeof(T));
    store_numbers(kept(load_pair(x + i), words + i, rule), y + i);
  }
  if (i < count) store_pair_tail(kept(load_pair_tail(x + i, count - i), words + i, rule), y + i, count - i);
}

// Processes elements that begin inside of a block, up to its end. Returns their number.
template <class T>
std::size_t drop_to_block(const Dropout& args, std::uint64_t element, const T* x, const Rule& rule, std::size_t count,
                          T* y) {
  const std::size_t skipped = element % 4;
  if (skipped == 0) return 0;
  HWY_ALIGN std::uint32_t words[2 * HWY_MAX_BYTES / sizeof(std::uint32_t)] = {};
  const auto block = philox_block(args.seed, args.step, element / 4);
  const std::size_t elems = 4 - skipped < count ? 4 - skipped : count;
  for (std::size_t i = 0; i < elems; i += pair_elems()) {  // with a single lane there are two elements per pair
    for (std::size_t k = 0; k < pair_elems() && i + k < elems; ++k) {
      words[EvenAndOdd<T> ? k % 2 * lanes_f32() + k / 2 : k] = block[skipped + i + k];
    }
    drop(x + i, words, rule, elems - i < pair_elems() ? elems - i : pair_elems(), y + i);
  }
  return elems;
}

template <class T>
void drop_range(const Dropout& args, std::int64_t begin, std::int64_t end) {
  HWY_ALIGN std::uint32_t words[kWords];
  const Rule rule{dropout_threshold(args.rate), static_cast<float>(1 / (1 - static_cast<double>(args.rate)))};
  const T* const x = args.x.as<T>();
  T* const y = args.y.as<T>();
  const auto last = static_cast<std::size_t>(end);
  auto i = static_cast<std::size_t>(begin);
  i += drop_to_block(args, args.first_element + i, x + i, rule, last - i, y + i);
  for (; i < last; i += kWords) {
    make_words<T>(args, (args.first_element + i) / 4, static_cast<std::uint32_t*>(words));
    drop(x + i, words, rule, kWords < last - i ? kWords : last - i, y + i);
  }
}

void dropout(const Dropout& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) { drop_range<decltype(zero)>(args, begin, end); });
}

struct Sum {
  HWY_INLINE VF32 operator()(VF32 a, VF32 b) const { return hn::Add(a, b); }
};

void add(const ResidualAdd& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(Sum(), stream, count, args.y.as<T>() + begin, args.a.as<T>() + begin, args.b.as<T>() + begin);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(dropout);
HWY_EXPORT(add);
constexpr std::int64_t kGrain = 1024;  // elements
}  // namespace

void Dropout::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_fraction(name(), "rate", rate);
}

std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t step, std::uint64_t block) {
  return philox4x32_10({low_word(block), high_word(block), low_word(step), high_word(step)},
                       {low_word(seed), high_word(seed)});
}

// One division per element.
Cost cost_of(const Dropout& args) {
  return cost_of_operands(static_cast<double>(args.count), args);
}

void run_cpu(const Dropout& args, ThreadPool& pool) {
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(dropout)(args, begin, end); });
}

Cost cost_of(const ResidualAdd& args) {
  return cost_of_operands(static_cast<double>(args.count), args);
}

void run_cpu(const ResidualAdd& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(add)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
