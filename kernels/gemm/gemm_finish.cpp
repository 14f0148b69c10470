// Finishes a block of f32 sums as it is stored, and computes sums over rows. Used by all implementations.
#include "kernels/base/view.h"
#include "kernels/gemm/gemm_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_finish.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/activation/gelu_math-inl.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Loads and stores whole vectors, or the `count` elements that are left at the end of a row.
struct Whole {
  template <class T>
  VF32 get(const T* from) const {
    return load(from);
  }
  template <class T>
  void put(VF32 value, T* to) const {
    store(value, to);
  }
};
struct Tail {
  std::size_t count;
  template <class T>
  VF32 get(const T* from) const {
    return load_tail(from, count);
  }
  template <class T>
  void put(VF32 value, T* to) const {
    store_tail(value, to, count);
  }
};

// One row of the block: pointers to its first elements.
template <class T>
struct Row {
  const float* sums;
  T* c;
  const T* bias;
  T* pre_written;
  const T* pre_read;
};

template <Finish kFinish, class T, class Lanes>
HWY_INLINE void finish_lanes(const Row<T>& row, std::size_t i, float alpha, const Lanes& lanes) {
  const VF32 sum = lanes.get(row.sums + i);
  if constexpr (kFinish == Finish::store) {
    lanes.put(hn::Mul(sum, hn::Set(F32(), alpha)), row.c + i);
  } else if constexpr (kFinish == Finish::bias) {
    lanes.put(hn::Add(sum, lanes.get(row.bias + i)), row.c + i);
  } else if constexpr (kFinish == Finish::bias_gelu) {
    const VF32 pre = hn::Add(sum, lanes.get(row.bias + i));
    lanes.put(pre, row.pre_written + i);
    lanes.put(gelu(pre), row.c + i);
  } else if constexpr (kFinish == Finish::times_gelu_slope) {
    lanes.put(hn::Mul(sum, gelu_slope(lanes.get(row.pre_read + i))), row.c + i);
  } else {
    lanes.put(hn::Add(lanes.get(row.c + i), sum), row.c + i);
  }
}

template <Finish kFinish, class T>
void finish_rows(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::size_t columns) {
  constexpr bool kBias = kFinish == Finish::bias || kFinish == Finish::bias_gelu;
  LOCKSTEP_CHECK(!kBias || c.bias != nullptr, "a bias");
  LOCKSTEP_CHECK(kFinish != Finish::bias_gelu || c.pre_written != nullptr, "memory for what goes into the GELU");
  LOCKSTEP_CHECK(kFinish != Finish::times_gelu_slope || c.pre_read != nullptr, "what went into the GELU");
  const std::size_t lanes = lanes_f32();
  for (std::int64_t r = 0; r < rows; ++r) {
    const Sums at = c.from(r, 0);
    const Row<T> row{sums + r * stride, at.as<T>(), static_cast<const T*>(c.bias), static_cast<T*>(at.pre_written),
                     static_cast<const T*>(at.pre_read)};
    std::size_t i = 0;
    for (; i + lanes <= columns; i += lanes) finish_lanes<kFinish>(row, i, c.alpha, Whole{});
    if (i < columns) finish_lanes<kFinish>(row, i, c.alpha, Tail{columns - i});
  }
}

template <class T>
void finish_as(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::size_t columns) {
  switch (c.finish) {
    case Finish::store:
      return finish_rows<Finish::store, T>(c, sums, stride, rows, columns);
    case Finish::bias:
      return finish_rows<Finish::bias, T>(c, sums, stride, rows, columns);
    case Finish::bias_gelu:
      return finish_rows<Finish::bias_gelu, T>(c, sums, stride, rows, columns);
    case Finish::times_gelu_slope:
      return finish_rows<Finish::times_gelu_slope, T>(c, sums, stride, rows, columns);
    case Finish::add:
      return finish_rows<Finish::add, T>(c, sums, stride, rows, columns);
  }
}

void finish_block(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  with_activation_type(
      c.dtype, [&](auto zero) { finish_as<decltype(zero)>(c, sums, stride, rows, static_cast<std::size_t>(columns)); });
}

template <class T, class Lanes>
HWY_INLINE void add_column(const T* x, std::int64_t stride, std::int64_t rows, float* out, const Lanes& lanes) {
  VF32 sum = hn::Zero(F32());
  for (std::int64_t r = 0; r < rows; ++r) sum = hn::Add(sum, lanes.get(x + r * stride));
  lanes.put(hn::Add(lanes.get(out), sum), out);
}

// Four vectors at a time, because a single one would wait for each of its additions.
template <class T>
HWY_INLINE void add_columns4(const T* x, std::int64_t stride, std::int64_t rows, float* out) {
  const std::size_t lanes = lanes_f32();
  VF32 sum[4] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::size_t v = 0; v < 4; ++v)
      sum[v] = hn::Add(sum[v], load(x + r * stride + static_cast<std::int64_t>(v * lanes)));
  }
  for (std::size_t v = 0; v < 4; ++v) store(hn::Add(load(out + v * lanes), sum[v]), out + v * lanes);
}

void add_columns(const Factor& x, std::int64_t rows, std::int64_t columns, float* out) {
  with_activation_type(x.dtype, [&](auto zero) {
    const auto* from = x.as<decltype(zero)>();
    const auto lanes = static_cast<std::int64_t>(lanes_f32());
    std::int64_t i = 0;
    for (; i + 4 * lanes <= columns; i += 4 * lanes) add_columns4(from + i, x.row_stride, rows, out + i);
    for (; i + lanes <= columns; i += lanes) add_column(from + i, x.row_stride, rows, out + i, Whole{});
    if (i < columns) add_column(from + i, x.row_stride, rows, out + i, Tail{static_cast<std::size_t>(columns - i)});
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(finish_block);
HWY_EXPORT(add_columns);
constexpr std::int64_t kColumnGrain = 64;  // four vectors of 16
}  // namespace

void finish_sums(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(finish_block)(c, sums, stride, rows, columns);
}

void add_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool) {
  pool.for_ranges(columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_columns)(x.from(0, begin), rows, end - begin, out + begin);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
