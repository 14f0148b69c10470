// How a product of row-major arrays is described to cuBLASLt, whose arrays are column-major; plain integers, so that
// any machine can test it. Row-major memory read by columns is the transpose, and c^T = b^T a^T: b is cuBLASLt's first
// factor and a its second.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

// Element (r, c) of matrix number i is at i * batch_stride + c * leading + r.
struct ColumnMatrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t leading;
  std::int64_t batch_stride;
  bool transposed;  // the product uses its transpose
};

struct ColumnProduct {
  ColumnMatrix first;   // b
  ColumnMatrix second;  // a
  ColumnMatrix result;  // c
};
ColumnProduct in_columns(const Product& product);

// Returns the largest power of two, at most 256, that divides the address.
std::uint32_t alignment_bytes(const void* address);

// Returns which of several algorithms to keep, given their times in the heuristic's order of preference: the first that
// is within 2 % of the fastest, so that noise does not decide between equals. Infinity means that it failed. -1: all
// failed.
int choose_algorithm(std::span<const double> times_us);

}  // namespace lockstep::kernels
