// Packs a matrix into panels of f32, for sources that use Highway: included once per target. A panel holds kWidth rows,
// depth by depth: out[panel][depth][kWidth]; rows past the end are zero.
#if defined(LOCKSTEP_KERNELS_GEMM_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_GEMM_GEMM_PACK_INL_H_
#undef LOCKSTEP_KERNELS_GEMM_GEMM_PACK_INL_H_
#else
#define LOCKSTEP_KERNELS_GEMM_GEMM_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr bool kNoVectors = HWY_TARGET == HWY_SCALAR;
using F32x4 = hn::CappedTag<float, 4>;  // four floats, but one on the target without vectors
using VF32x4 = hn::Vec<F32x4>;

HWY_INLINE VF32x4 load4(const float* from) {
  return hn::LoadU(F32x4(), from);
}
HWY_INLINE VF32x4 load4(const core::BFloat16* from) {
  const hn::RebindToUnsigned<F32x4> du;
  const hn::Rebind<std::uint16_t, F32x4> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(F32x4(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
HWY_INLINE VF32x4 load4(const core::Float16* from) {
  const hn::Rebind<hwy::float16_t, F32x4> dh;
  return hn::PromoteTo(F32x4(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}

HWY_INLINE float widened(float x) {
  return x;
}
HWY_INLINE float widened(core::BFloat16 x) {
  return core::to_float(x);
}
HWY_INLINE float widened(core::Float16 x) {
  return core::to_float(x);
}

// Transposes four rows at four depths: from x[row][depth] to out[depth][row]. The interleaving functions are found by
// argument-dependent lookup, because the target without vectors has none.
template <class D, class T>
HWY_INLINE void transpose4x4(D d, const T* x, std::int64_t row_stride, float* out, std::int64_t out_stride) {
  const hn::RepartitionToWide<D> dw;
  const VF32x4 r0 = load4(x);
  const VF32x4 r1 = load4(x + row_stride);
  const VF32x4 r2 = load4(x + 2 * row_stride);
  const VF32x4 r3 = load4(x + 3 * row_stride);
  const auto low01 = hn::BitCast(dw, InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(dw, InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dw, InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(dw, InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, InterleaveLower(dw, low01, low23)), d, out);
  hn::StoreU(hn::BitCast(d, InterleaveUpper(dw, low01, low23)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, InterleaveLower(dw, high01, high23)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, InterleaveUpper(dw, high01, high23)), d, out + 3 * out_stride);
}

// Packs one depth of a panel: rows past the end become zero.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_depth(const T* x, std::int64_t row_stride, std::int64_t rows, float* out) {
  for (std::int64_t r = 0; r < kWidth; ++r) out[r] = r < rows ? widened(x[r * row_stride]) : 0.0F;
}

// Depth is contiguous in memory: rows are read four at a time and transposed.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_turned(const T* x, std::int64_t row_stride, std::int64_t depth, float* out) {
  std::int64_t t = 0;
  for (; t + 4 <= depth; t += 4) {
    for (std::int64_t r = 0; r < kWidth; r += 4) {
      transpose4x4(F32x4(), x + r * row_stride + t, row_stride, out + t * kWidth + r, kWidth);
    }
  }
  for (; t < depth; ++t) pack_depth<kWidth>(x + t, row_stride, kWidth, out + t * kWidth);
}

// Rows are contiguous in memory: several panels are packed at a time, so that whole cache lines are used at each depth.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_straight(const T* x, std::int64_t depth_stride, std::int64_t panels, std::int64_t depth,
                              float* out) {
  for (std::int64_t t = 0; t < depth; ++t) {
    const T* from = x + t * depth_stride;
    for (std::int64_t panel = 0; panel < panels; ++panel, from += kWidth) {
      float* const to = out + (panel * depth + t) * kWidth;
      for (std::int64_t r = 0; r < kWidth; r += 4) hn::StoreU(load4(from + r), F32x4(), to + r);
    }
  }
}

// Packs `panels` whole panels.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_whole(const T* x, std::int64_t row_stride, std::int64_t depth_stride, std::int64_t panels,
                           std::int64_t depth, float* out) {
  constexpr std::int64_t kTogether = 4;
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    if (depth_stride == 1) {
      pack_turned<kWidth>(x + panel * kWidth * row_stride, row_stride, depth, out + panel * kWidth * depth);
    } else if (panel % kTogether == 0) {
      pack_straight<kWidth>(x + panel * kWidth, depth_stride, std::min(kTogether, panels - panel), depth,
                            out + panel * kWidth * depth);
    }
  }
}

template <std::int64_t kWidth, class T>
void pack_panels(const T* x, std::int64_t row_stride, std::int64_t depth_stride, std::int64_t rows, std::int64_t depth,
                 float* out) {
  std::int64_t row = 0;
  if constexpr (!kNoVectors) {
    pack_whole<kWidth>(x, row_stride, depth_stride, rows / kWidth, depth, out);
    row = rows / kWidth * kWidth;
  }
  for (; row < rows; row += kWidth) {
    for (std::int64_t t = 0; t < depth; ++t) {
      pack_depth<kWidth>(x + row * row_stride + t * depth_stride, row_stride, rows - row,
                         out + row * depth + t * kWidth);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
