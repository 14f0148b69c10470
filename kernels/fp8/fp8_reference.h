// Reference: plain loops, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/base/operands.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"

namespace lockstep::kernels {

inline std::size_t block_of(const ScaleGrid& grid, std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(row / grid.block_rows * grid.across() + column / grid.block_columns);
}

inline double scale_reference(double largest, core::DType fp8) {
  if (largest == 0) return 1;
  if (!std::isfinite(largest)) return NAN;
  double scale = std::ldexp(1.0, -126);
  while (largest / scale > static_cast<double>(largest_number(fp8)) && scale < std::ldexp(1.0, 126)) scale *= 2;
  return scale;
}

template <class S>
void reference(const Fp8Encode& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto previous = data["previous"];
  const auto largest = data[args.delayed ? "raised" : "largest"];
  const auto scales = data["scales"];
  const auto codes = data["codes"];
  const ScaleGrid grid = scale_grid(args.per, args.rows, args.columns);
  const auto place = [&](std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(args.transposed ? column * grid.rows + row : row * grid.columns + column);
  };
  if (!args.delayed) std::fill(largest.begin(), largest.end(), S(0));
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      S& most = largest[block_of(grid, row, column)];
      most = std::max(value_of(most), std::fabs(value_of(x[place(row, column)])));
    }
  }
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const double before = args.delayed ? value_of(previous[block]) : 0;
    scales[block] = scale_reference(before > 0 && std::isfinite(before) ? before : value_of(largest[block]), args.to);
  }
  const double most = static_cast<double>(largest_number(args.to));
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      const S code = x[place(row, column)] / scales[block_of(grid, row, column)];
      codes[static_cast<std::size_t>(row * grid.columns + column)] = code < S(-most)  ? S(-most)
                                                                     : code > S(most) ? S(most)
                                                                                      : code;
    }
  }
}

template <class S>
void reference(const Fp8Decode& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  const ScaleGrid grid = scale_grid(args.per, args.rows, args.columns);
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      const auto i = static_cast<std::size_t>(row * grid.columns + column);
      y[i] = codes[i] * scales[block_of(grid, row, column)];
    }
  }
}

// Sums of blocks along k, each with its scales, as in DeepSeek-AI 2024 (arXiv:2412.19437, figure 7).
template <class S, class Add>
void add_products(const Fp8Product& shape, ReferenceData<S>& data, const Add& add) {
  const auto a = data["a"];
  const auto b = data["b"];
  const auto a_scales = data["a_scales"];
  const auto b_scales = data["b_scales"];
  const ScaleGrid of_a = shape.grid_of_a();
  const ScaleGrid of_b = shape.grid_of_b();
  for (std::int64_t i = 0; i < shape.m; ++i) {
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t begin = 0; begin < shape.k; begin += of_a.block_columns) {
        S sum = 0;
        for (std::int64_t k = begin; k < std::min(shape.k, begin + of_a.block_columns); ++k) {
          sum += a[static_cast<std::size_t>(i * shape.k + k)] * b[static_cast<std::size_t>(j * shape.k + k)];
        }
        const S scale = a_scales[block_of(of_a, i, begin)] * b_scales[block_of(of_b, j, begin)];
        add(static_cast<std::size_t>(i * shape.n + j), sum * scale);
      }
    }
  }
}

template <class S>
void reference(const GemmFp8& args, ReferenceData<S>& data) {
  const auto bias = data["bias"];
  const auto y = data["y"];
  const auto n = static_cast<std::size_t>(args.shape.n);
  std::fill(y.begin(), y.end(), S(0));
  add_products(args.shape, data, [&](std::size_t at, const S& term) { y[at] += term; });
  if (!args.with_bias) return;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % n];
}

template <class S>
void reference(const GemmFp8Add& args, ReferenceData<S>& data) {
  const auto dy = data["dy"];
  const auto dw = data["dw"];
  const auto dbias = data["dbias"];
  const auto m = static_cast<std::size_t>(args.shape.m);
  add_products(args.shape, data, [&](std::size_t at, const S& term) { dw[at] += term; });
  if (!args.with_bias) return;
  for (std::size_t i = 0; i < dy.size(); ++i) dbias[i % m] += dy[i];
}

}  // namespace lockstep::kernels
