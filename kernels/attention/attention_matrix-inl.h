// Products of small f32 matrices in the caches, for sources that use Highway: included once per target. A block of the
// result stays in registers for the whole depth: six rows by four vectors with 32 registers, by two with 16.
#if defined(LOCKSTEP_KERNELS_ATTENTION_ATTENTION_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_MATRIX_INL_H_
#undef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_MATRIX_INL_H_
#else
#define LOCKSTEP_KERNELS_ATTENTION_ATTENTION_MATRIX_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBlockRows = 6;
constexpr int kBlockVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;

// The left factor, whose element (r, k) is at data[r * row + k * step]: plain or transposed.
struct Left {
  const float* data;
  std::size_t row;
  std::size_t step;
};
// The right factor and the result: consecutive rows.
struct Right {
  const float* data;
  std::size_t row;
};
struct Result {
  float* data;
  std::size_t row;
};

// The part of a block of rows that must be computed: columns from `first_column` on, a multiple of the vector, and
// depths in [depth_begin, depth_end).
struct Part {
  std::size_t first_column;
  std::size_t depth_begin;
  std::size_t depth_end;
};

template <bool kAdd, int kRows, int kVectors>
HWY_INLINE void multiply_block(const Left& left, const Right& right, const Result& result, const Part& part) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  VF32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const at = result.data + static_cast<std::size_t>(r) * result.row + static_cast<std::size_t>(v) * lanes;
      sums[r][v] = kAdd ? hn::LoadU(d, at) : hn::Zero(d);
    }
  }
  const float* a = left.data + part.depth_begin * left.step;
  const float* b = right.data + part.depth_begin * right.row;
  for (std::size_t k = part.depth_begin; k < part.depth_end; ++k, a += left.step, b += right.row) {
    VF32 columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, b + static_cast<std::size_t>(v) * lanes);
    for (int r = 0; r < kRows; ++r) {
      const VF32 factor = hn::Set(d, a[static_cast<std::size_t>(r) * left.row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const at = result.data + static_cast<std::size_t>(r) * result.row + static_cast<std::size_t>(v) * lanes;
      hn::StoreU(sums[r][v], d, at);
    }
  }
}

// Computes columns [first_column, columns) of some rows, in blocks of as many vectors as fit in registers.
template <bool kAdd, int kRows, int kVectors = kBlockVectors>
void multiply_rows(const Left& left, const Right& right, const Result& result, std::size_t columns, const Part& part) {
  const std::size_t width = static_cast<std::size_t>(kVectors) * lanes_f32();
  std::size_t c = part.first_column;
  for (; c + width <= columns; c += width) {
    multiply_block<kAdd, kRows, kVectors>(left, {right.data + c, right.row}, {result.data + c, result.row}, part);
  }
  if constexpr (kVectors > 1) {
    if (c >= columns) return;
    Part rest = part;
    rest.first_column = c;
    multiply_rows<kAdd, kRows, kVectors - 1>(left, right, result, columns, rest);
  }
}

template <bool kAdd, int kRows = kBlockRows>
void multiply_last_rows(std::size_t rows, const Left& left, const Right& right, const Result& result,
                        std::size_t columns, const Part& part) {
  if (rows == static_cast<std::size_t>(kRows)) {
    multiply_rows<kAdd, kRows>(left, right, result, columns, part);
  } else if constexpr (kRows > 1) {
    multiply_last_rows<kAdd, kRows - 1>(rows, left, right, result, columns, part);
  }
}

// Computes result (+)= left * right. `columns` is a multiple of the vector; part_of(begin, end) returns the part that
// is needed of the rows [begin, end).
template <bool kAdd, class PartOf>
HWY_INLINE void multiply(const Left& left, const Right& right, const Result& result, std::size_t rows,
                         std::size_t columns, const PartOf& part_of) {
  for (std::size_t r = 0; r < rows; r += kBlockRows) {
    const std::size_t some = std::min(rows - r, static_cast<std::size_t>(kBlockRows));
    multiply_last_rows<kAdd>(some, {left.data + r * left.row, left.row, left.step}, right,
                             {result.data + r * result.row, result.row}, columns, part_of(r, r + some));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
