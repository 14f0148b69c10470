#include "kernels/gemm/gemm_columns.h"

#include <algorithm>
#include <cmath>

namespace lockstep::kernels {
namespace {

// Returns the transpose of a [rows, columns] factor. A matrix of one column may have any stride, but cuBLASLt requires
// at least its number of rows.
ColumnMatrix transpose_by_columns(const Factor& factor, std::int64_t rows, std::int64_t columns) {
  const bool by_rows = factor.column_stride == 1;
  ColumnMatrix seen{};
  seen.rows = by_rows ? columns : rows;
  seen.columns = by_rows ? rows : columns;
  seen.leading = std::max(by_rows ? factor.row_stride : factor.column_stride, seen.rows);
  seen.batch_stride = factor.batch_stride;
  seen.transposed = !by_rows;
  return seen;
}

}  // namespace

ColumnProduct in_columns(const Product& p) {
  return {.first = transpose_by_columns(p.b, p.k, p.n),
          .second = transpose_by_columns(p.a, p.m, p.k),
          .result = {.rows = p.n,
                     .columns = p.m,
                     .leading = std::max(p.c.row_stride, p.n),
                     .batch_stride = p.c.batch_stride,
                     .transposed = false}};
}

std::uint32_t alignment_bytes(const void* address) {
  constexpr std::uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | kMost;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

int choose_algorithm(std::span<const double> times_us) {
  constexpr double kEqual = 1.02;
  if (times_us.empty()) return -1;
  const double best_us = *std::min_element(times_us.begin(), times_us.end());
  if (!std::isfinite(best_us)) return -1;
  const auto first = std::find_if(times_us.begin(), times_us.end(), [&](double us) { return us <= best_us * kEqual; });
  return static_cast<int>(first - times_us.begin());
}

}  // namespace lockstep::kernels
