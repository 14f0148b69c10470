// Loops over the rows of a matrix, for sources that use Highway: included once per target.
//
// Short rows are processed several at a time: their sums are independent chains of additions, and one row's reduction
// across lanes overlaps with another's arithmetic.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_ROWS_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_ROWS_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <std::size_t kRows>
using RowPairs = std::array<Pair, kRows>;
template <std::size_t kRows>
using RowFloats = std::array<float, kRows>;

// Calls body(row, std::integral_constant<std::size_t, kGroup or 1>) for groups of rows from `begin` to `end`: kGroup
// rows if their floats together fit in the L1 cache. The results for a row must not depend on its group.
template <std::size_t kGroup = 4, class Body>
HWY_INLINE void for_row_groups(std::size_t begin, std::size_t end, std::size_t columns, const Body& body) {
  constexpr std::size_t kMostColumns = 2048;
  std::size_t row = begin;
  if (columns <= kMostColumns) {
    for (; row + kGroup <= end; row += kGroup) body(row, std::integral_constant<std::size_t, kGroup>());
  }
  for (; row < end; ++row) body(row, std::integral_constant<std::size_t, 1>());
}

HWY_INLINE Pair both(VF32 value) {
  return {value, value};
}

template <std::size_t kRows>
HWY_INLINE RowPairs<kRows> all_rows(float value) {
  RowPairs<kRows> rows;
  for (Pair& row : rows) row = both(hn::Set(F32(), value));
  return rows;
}

// Returns the sum of each row's lanes.
template <std::size_t kRows>
HWY_INLINE RowFloats<kRows> row_sums(const RowPairs<kRows>& rows) {
  RowFloats<kRows> sums;
  for (std::size_t r = 0; r < kRows; ++r) {
    sums[r] = hn::GetLane(hn::SumOfLanes(F32(), hn::Add(rows[r].a, rows[r].b)));
  }
  return sums;
}
template <std::size_t kRows>
HWY_INLINE RowFloats<kRows> row_maxima(const RowPairs<kRows>& rows) {
  RowFloats<kRows> maxima;
  for (std::size_t r = 0; r < kRows; ++r) {
    maxima[r] = hn::GetLane(hn::MaxOfLanes(F32(), hn::Max(rows[r].a, rows[r].b)));
  }
  return maxima;
}

// Prefetches a pair of the next rows, in kernels whose operands are in no cache: rows are walked more than once, and
// the memory bus would idle meanwhile. The address may lie past the array's end.
template <class T>
HWY_INLINE void prefetch_pair(const T* at) {
  const std::size_t pair_bytes = pair_elems() * sizeof(T);
  for (std::size_t line = 0; line < pair_bytes; line += kLineBytes) {
    hwy::Prefetch(reinterpret_cast<const std::byte*>(at) + line);
  }
}

// Prefetches the part of the next `kRows` consecutive rows that corresponds to one step of a walk over the columns, at
// column c. By the end of the walk everything has been prefetched in the order of addresses, which memory serves faster
// than several streams at a time. The address may lie past the array's end.
template <std::size_t kRows, class T>
HWY_INLINE void prefetch_rows(const T* rows, std::size_t c) {
  const T* const at = rows + kRows * c;
  for (std::size_t pair = 0; pair < kRows; ++pair) prefetch_pair(at + pair * pair_elems());
}

// Returns whether each row of a matrix begins at an address to which a vector's non-temporal store may write.
template <class T>
HWY_INLINE bool rows_are_aligned(const T* first, std::size_t columns) {
  const std::size_t vector_bytes = lanes_f32() * sizeof(float);
  return reinterpret_cast<std::uintptr_t>(first) % vector_bytes == 0 && columns * sizeof(T) % vector_bytes == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
