#include "bench/kernels_bench/roofline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels_bench/ceiling_loops.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel_bench {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

template <bool kPastCaches>
HWY_INLINE void put(VF32 value, float* to) {
  if constexpr (kPastCaches) {
    hn::Stream(value, F32(), to);
  } else {
    hn::Store(value, F32(), to);
  }
}

// Prefetches lines from memory if stores are non-temporal: the hardware prefetcher does not cross a page boundary, and
// 4 KiB further ahead a copy on two cores is half again as fast (Sapphire Rapids).
template <bool kPastCaches>
HWY_INLINE void ask_ahead(const float* from) {
  constexpr std::int64_t kAheadFloats = 1024;
  if constexpr (kPastCaches) hwy::Prefetch(from + kAheadFloats);
}

template <bool kPastCaches>
void copy_by(const float* HWY_RESTRICT a, float* HWY_RESTRICT to, std::int64_t floats) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  for (std::int64_t i = 0; i < floats; i += 4 * lanes) {
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::int64_t at = i + k * lanes;
      ask_ahead<kPastCaches>(a + at);
      put<kPastCaches>(hn::Load(F32(), a + at), to + at);
    }
  }
}

template <bool kPastCaches>
void triad_by(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT to, std::int64_t floats) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const VF32 factor = hn::Set(F32(), 3.0F);
  for (std::int64_t i = 0; i < floats; i += 4 * lanes) {
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::int64_t at = i + k * lanes;
      ask_ahead<kPastCaches>(a + at);
      ask_ahead<kPastCaches>(b + at);
      put<kPastCaches>(hn::MulAdd(factor, hn::Load(F32(), b + at), hn::Load(F32(), a + at)), to + at);
    }
  }
}

void copy(const float* a, float* to, std::int64_t floats, bool past_caches) {
  past_caches ? copy_by<true>(a, to, floats) : copy_by<false>(a, to, floats);
}

void triad(const float* a, const float* b, float* to, std::int64_t floats, bool past_caches) {
  past_caches ? triad_by<true>(a, b, to, floats) : triad_by<false>(a, b, to, floats);
}

// Reads at four positions of the array at once, because a core has more lines in flight for several streams than for
// one; uses eight sums, because an addition takes four cycles and two can begin in each.
float read(const float* a, std::int64_t floats) {
  constexpr std::size_t kStreams = 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::int64_t quarter = floats / static_cast<std::int64_t>(kStreams);
  VF32 sums[2 * kStreams];
  for (VF32& sum : sums) sum = hn::Zero(F32());
  for (std::int64_t i = 0; i < quarter; i += 2 * lanes) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const float* const from = a + static_cast<std::int64_t>(stream) * quarter + i;
      VF32* const both = sums + 2 * stream;
      both[0] = hn::Add(both[0], hn::Load(F32(), from));
      both[1] = hn::Add(both[1], hn::Load(F32(), from + lanes));
    }
  }
  for (std::size_t k = 1; k < 2 * kStreams; ++k) sums[0] = hn::Add(sums[0], sums[k]);
  return hn::GetLane(hn::SumOfLanes(F32(), sums[0]));
}

// Twelve sums: more than latency times units of any x86 core, and with two operands they fit in 16 registers.
double fma(std::int64_t rounds) {
  constexpr int kSums = 12;
  VF32 sums[kSums];
  for (VF32& sum : sums) sum = hn::Set(F32(), 0.5F);
  const VF32 factor = hn::Set(F32(), 0.5F);
  const VF32 addend = hn::Set(F32(), 0.25F);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (VF32& sum : sums) sum = hn::MulAdd(sum, factor, addend);
  }
  VF32 total = sums[0];
  for (int k = 1; k < kSums; ++k) total = hn::Add(total, sums[k]);
  const bool as_expected =
      hn::GetLane(total) ==
      0.5F * kSums;  // 0.5 is the fixed point; this also uses the result, so that the work is not optimized away
  return as_expected ? 2.0 * kSums * static_cast<double>(hn::Lanes(F32())) * static_cast<double>(rounds) : 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel_bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel_bench {
namespace {
HWY_EXPORT(copy);
HWY_EXPORT(triad);
HWY_EXPORT(read);
HWY_EXPORT(fma);
}  // namespace

// Targets are bits; better ones are lower.
std::string instruction_set() {
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

void copy_loop(const float* a, float* to, std::int64_t floats, bool past_caches) {
  HWY_DYNAMIC_DISPATCH(copy)(a, to, floats, past_caches);
  if (past_caches) hwy::FlushStream();
}
void triad_loop(const float* a, const float* b, float* to, std::int64_t floats, bool past_caches) {
  HWY_DYNAMIC_DISPATCH(triad)(a, b, to, floats, past_caches);
  if (past_caches) hwy::FlushStream();
}
float read_loop(const float* a, std::int64_t floats) {
  return HWY_DYNAMIC_DISPATCH(read)(a, floats);
}
double fma_f32_loop(std::int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(fma)(rounds);
}

}  // namespace lockstep::kernel_bench
#endif  // HWY_ONCE
