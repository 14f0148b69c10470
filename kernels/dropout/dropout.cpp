#include "kernels/dropout/dropout.h"

#include "kernels/base/element_types.h"
#include "kernels/base/number_checks.h"
#include "kernels/dropout/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout/dropout.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kBlocks = 64;  // of which words are made at a time
constexpr std::size_t kWords = 4 * kBlocks;

// The words of kBlocks blocks from `first` on, one block after another. A 64-bit lane holds a word of one block in its
// lower half; what is in the upper half is not looked at, as multiplications take lower halves only.
template <class Words>
HWY_INLINE void make_words(const Dropout& args, std::uint64_t first, Words* words) {
  const hn::ScalableTag<Words> du32;
  const hn::Repartition<std::uint64_t, decltype(du32)> d;
  const auto times = [&](auto a, std::uint32_t b)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(du32, a), hn::Set(du32, b)); };
  const auto wide = [&](std::uint32_t word) HWY_ATTR { return hn::Set(d, std::uint64_t{word}); };
  for (std::size_t block = 0; block < kBlocks; block += hn::Lanes(d)) {
    const auto number = hn::Add(hn::Set(d, first + block), hn::Iota(d, 0));
    auto c0 = number;
    auto c1 = hn::ShiftRight<32>(number);
    auto c2 = wide(low_word(args.step));
    auto c3 = wide(high_word(args.step));
    std::uint32_t key0 = low_word(args.seed);
    std::uint32_t key1 = high_word(args.seed);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const auto product0 = times(c0, kPhiloxMultiplier0);
      const auto product1 = times(c2, kPhiloxMultiplier1);
      c0 = hn::Xor3(hn::ShiftRight<32>(product1), c1, wide(key0));
      c1 = product1;
      c2 = hn::Xor3(hn::ShiftRight<32>(product0), c3, wide(key1));
      c3 = product0;
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
    const auto pair = [&](auto low, auto high)
                          HWY_ATTR { return hn::Or(hn::And(low, wide(0xffffffffu)), hn::ShiftLeft<32>(high)); };
    hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), d, reinterpret_cast<std::uint64_t*>(words + 4 * block));
  }
}

// One lane of 32 bits holds no 64-bit number.
template <class Words>
requires(HWY_TARGET == HWY_SCALAR) HWY_INLINE void make_words(const Dropout& args, std::uint64_t first, Words* words) {
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const auto four = philox_block(args.seed, args.step, first + block);
    for (std::size_t w = 0; w < 4; ++w) words[4 * block + w] = four[w];
  }
}

// `words` are those of the elements from x on. y may be x.
template <class T>
void drop(const T* x, const std::uint32_t* words, std::uint32_t threshold, float scale, std::size_t count, T* y) {
  const F32 d;
  const U32 du;
  const auto kept = [&](VF32 value, std::size_t i) HWY_ATTR {
    const auto dropped = hn::Lt(hn::LoadU(du, words + i), hn::Set(du, threshold));
    return hn::IfThenZeroElse(hn::RebindMask(d, dropped), hn::Mul(value, hn::Set(d, scale)));
  };
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(kept(load(x + i), i), y + i);
  if (i < count) store_tail(kept(load_tail(x + i, count - i), i), y + i, count - i);
}

template <class T>
void drop_range(const Dropout& args, std::int64_t begin, std::int64_t end) {
  // Elements of a piece may begin inside of a block, and a tail's load goes on past the last word.
  HWY_ALIGN std::uint32_t words[kWords + HWY_MAX_BYTES / sizeof(std::uint32_t)] = {};
  const std::uint32_t threshold = dropout_threshold(args.rate);
  const auto scale = static_cast<float>(1 / (1 - static_cast<double>(args.rate)));
  const auto last = static_cast<std::size_t>(end);
  for (auto i = static_cast<std::size_t>(begin); i < last;) {
    const std::uint64_t element = args.first_element + i;
    const std::size_t skipped = element % 4;
    make_words(args, element / 4, words);
    const std::size_t count = kWords - skipped < last - i ? kWords - skipped : last - i;
    drop(args.x.as<T>() + i, words + skipped, threshold, scale, count, args.y.as<T>() + i);
    i += count;
  }
}

void dropout(const Dropout& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) { drop_range<decltype(zero)>(args, begin, end); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(dropout);
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

// A division an element.
Cost cost_of(const Dropout& args) {
  return {static_cast<double>(args.count), operand_bytes(args), ""};
}

void run_cpu(const Dropout& args, ThreadPool& pool) {
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(dropout)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
