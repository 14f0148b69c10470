// Our own product in f32, for any dtypes and orders of its factors: blocks of both are packed in the order in which the
// innermost loop reads them (Van Zee, van de Geijn 2015, BLIS, ACM Trans. Math. Softw. 41, section 4), and widened to
// f32. The sums of an element of c are added in the same order whatever part of c a thread computes.
#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/base/view.h"
#include "kernels/gemm/gemm_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_packed.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Packs a matrix into panels of f32. A panel holds kWidth rows, depth by depth: out[panel][depth][kWidth]; rows past
// the end are zero.

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

// The product.

// The innermost loop holds kRows x kVectors vectors of sums: 24 of AVX-512's 32 registers, 12 of the others' 16.
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;
constexpr std::int64_t kRows = kManyRegisters ? 12 : 4;
constexpr std::int64_t kVectors = kManyRegisters ? 2 : kNoVectors ? 4 : 3;
constexpr std::int64_t kLanes = HWY_LANES(float);
constexpr std::int64_t kColumns = kVectors * kLanes;

// Block sizes in elements: of depth, such that sums seldom go through memory; of b, half of the L2 cache; of a, the
// rows that are packed at a time.
constexpr std::int64_t kDepth = 1024;
constexpr std::int64_t kPackedB = 262144;
constexpr std::int64_t kPackedRows = 1020;
constexpr std::int64_t kPartialColumns = 1024;  // used if sums do go through memory

std::int64_t round_up(std::int64_t count, std::int64_t grain) {
  return (count + grain - 1) / grain * grain;
}

// Sums stay in registers only if no loop runs over their array, so the compiler unrolls these accesses.
template <int... kIndex>
HWY_INLINE void clear_sums(VF32* sums, std::integer_sequence<int, kIndex...>) {
  ((sums[kIndex] = hn::Zero(F32())), ...);
}

template <int... kIndex>
HWY_INLINE void multiply_step(const float* a, const VF32* b, VF32* sums, std::integer_sequence<int, kIndex...>) {
  ((sums[kIndex] = hn::MulAdd(hn::Set(F32(), a[kIndex / kVectors]), b[kIndex % kVectors], sums[kIndex])), ...);
}

HWY_INLINE void put(VF32 sum, bool add, float* to) {
  store(add ? hn::Add(load(to), sum) : sum, to);
}

template <int... kIndex>
HWY_INLINE void store_sums(const VF32* sums, bool add, float* to, std::int64_t stride,
                           std::integer_sequence<int, kIndex...>) {
  (put(sums[kIndex], add, to + kIndex / kVectors * stride + kIndex % kVectors * kLanes), ...);
}

// out[kUsed, kColumns] (+)= a[depth, kRows]^T b[depth, kColumns], with the first kUsed rows of a.
template <int kUsed>
void multiply(const float* a, const float* b, std::int64_t depth, bool add, float* out, std::int64_t stride) {
  constexpr auto kAll = std::make_integer_sequence<int, kUsed* static_cast<int>(kVectors)>();
  for (std::int64_t r = 0; r < kUsed; ++r) {  // they will soon be read or written
    hwy::Prefetch(out + r * stride);
    hwy::Prefetch(out + r * stride + kColumns - 1);
  }
  VF32 sums[kAll.size()];
  clear_sums(sums, kAll);
  for (std::int64_t t = 0; t < depth; ++t, a += kRows, b += kColumns) {
    VF32 right[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) right[v] = hn::Load(F32(), b + v * kLanes);
    multiply_step(a, right, sums, kAll);
  }
  store_sums(sums, add, out, stride, kAll);
}

// The same for the existing rows, in steps of four.
void multiply_rows(const float* a, const float* b, std::int64_t depth, std::int64_t rows, bool add, float* out,
                   std::int64_t stride) {
  if (rows <= 4 || kRows == 4) return multiply<4>(a, b, depth, add, out, stride);
  if constexpr (kRows == 12) {
    if (rows <= 8) return multiply<8>(a, b, depth, add, out, stride);
    return multiply<12>(a, b, depth, add, out, stride);
  }
}

// Whole tiles then need no finish: it would give the same bits.
bool writes_sums_as_they_are(const Sums& c) {
  return c.dtype == core::DType::f32 && (c.finish == Finish::add || (c.finish == Finish::store && c.alpha == 1));
}

// One thread's product, block by block.
class Packed {
 public:
  Packed(const Product& product, ThreadPool& pool, int thread)
      : p_(product),
        depth_(std::min(product.k, kDepth)),
        one_pass_(product.k <= kDepth || product.c.finish == Finish::add),
        direct_(one_pass_ && writes_sums_as_they_are(product.c)),
        b_columns_(std::min(round_up(product.n, kColumns), kPackedB / depth_ / kColumns * kColumns)),
        outer_columns_(one_pass_ ? product.n : std::min(product.n, kPartialColumns)) {
    const std::int64_t rows = round_up(std::min(product.m, kPackedRows), kRows);
    partial_stride_ = one_pass_ ? kColumns : round_up(outer_columns_, kColumns);
    const std::int64_t partial = one_pass_ ? kRows * kColumns : rows * partial_stride_;
    const std::int64_t packed_a = round_up(rows * depth_, 32);
    const std::int64_t packed_b = round_up(b_columns_ * depth_, 32);
    a_ = pool.scratch_of<float>(thread, static_cast<std::size_t>(packed_a + packed_b + partial)).data();
    b_ = a_ + packed_a;
    partial_ = b_ + packed_b;
  }

  void run() {
    for (std::int64_t column = 0; column < p_.n; column += outer_columns_) {
      for (std::int64_t row = 0; row < p_.m; row += kPackedRows) {
        outer_block(row, std::min(kPackedRows, p_.m - row), column, std::min(outer_columns_, p_.n - column));
      }
    }
  }

 private:
  struct Block {
    std::int64_t row, rows, column, columns, begin, depth;
    std::int64_t outer_column;
  };

  void outer_block(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    for (std::int64_t begin = 0; begin < p_.k; begin += kDepth) {
      const std::int64_t depth = std::min(kDepth, p_.k - begin);
      const Factor a = p_.a.from(row, begin);
      with_activation_type(a.dtype, [&](auto zero) {
        pack_panels<kRows>(a.as<decltype(zero)>(), a.row_stride, a.column_stride, rows, depth, a_);
      });
      for (std::int64_t inner = 0; inner < columns; inner += b_columns_) {
        inner_block({row, rows, column + inner, std::min(b_columns_, columns - inner), begin, depth, column});
      }
    }
  }

  void inner_block(const Block& block) {
    const Factor b = p_.b.from(block.begin, block.column);
    with_activation_type(b.dtype, [&](auto zero) {
      pack_panels<kColumns>(b.as<decltype(zero)>(), b.column_stride, b.row_stride, block.columns, block.depth, b_);
    });
    for (std::int64_t r = 0; r < block.rows; r += kRows) {
      for (std::int64_t c = 0; c < block.columns; c += kColumns) tile(block, r, c);
    }
  }

  void tile(const Block& block, std::int64_t r, std::int64_t c) {
    const std::int64_t rows = std::min(kRows, block.rows - r);
    const std::int64_t columns = std::min(kColumns, block.columns - c);
    const float* const a = a_ + r * block.depth;
    const float* const b = b_ + c * block.depth;
    const Sums result = p_.c.from(block.row + r, block.column + c);
    if (direct_ && rows % 4 == 0 && columns == kColumns) {
      return multiply_rows(a, b, block.depth, rows, result.finish == Finish::add, result.as<float>(),
                           result.row_stride);
    }
    const std::int64_t in_outer = block.column + c - block.outer_column;
    float* const sums = one_pass_ ? partial_ : partial_ + r * partial_stride_ + in_outer;
    multiply_rows(a, b, block.depth, rows, !one_pass_ && block.begin > 0, sums, partial_stride_);
    if (one_pass_ || block.begin + block.depth == p_.k) finish_sums(result, sums, partial_stride_, rows, columns);
  }

  const Product& p_;
  const std::int64_t depth_;
  const bool one_pass_;  // each block of depth is finished at once
  const bool direct_;    // from registers to c if a tile is whole
  const std::int64_t b_columns_;
  const std::int64_t outer_columns_;
  std::int64_t partial_stride_;
  float* a_;
  float* b_;
  float* partial_;
};

void run_packed(const Product& product, ThreadPool& pool, int thread) {
  Packed(product, pool, thread).run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(run_packed);

class PackedGemm : public GemmImplementation {
 public:
  std::string_view name() const override { return "packed"; }
  bool can(core::DType /*dtype*/) const override { return true; }
  void run(const Product& product, ThreadPool& pool, int thread) override {
    HWY_DYNAMIC_DISPATCH(run_packed)(product, pool, thread);
  }
};

}  // namespace

std::unique_ptr<GemmImplementation> make_packed_gemm() {
  return std::make_unique<PackedGemm>();
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
