// Reference: plain loops, for tests.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/activation/activation.h"
#include "kernels/base/operands.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

inline std::size_t elems_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

inline std::array<std::size_t, 3> sizes_of(const GemmShape& shape) {
  return {elems_of(shape.rows), elems_of(shape.inputs), elems_of(shape.outputs)};
}

template <class S>
void reference(const GemmForward& args, ReferenceData<S>& data) {
  const auto [rows, inputs, outputs] = sizes_of(args.shape);
  const auto x = data["x"];
  const auto w = data["w"];
  const auto bias = data["bias"];
  const auto pre = data["pre"];
  const auto y = data["y"];
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < outputs; ++o) {
      S sum = 0;
      for (std::size_t c = 0; c < inputs; ++c) sum += x[r * inputs + c] * w[o * inputs + c];
      if (args.epilogue != Epilogue::none) sum += bias[o];
      if (args.epilogue == Epilogue::bias_gelu) pre[r * outputs + o] = sum;
      y[r * outputs + o] = args.epilogue == Epilogue::bias_gelu ? gelu_reference(sum) : sum;
    }
  }
}

template <class S>
void reference(const GemmInputGradient& args, ReferenceData<S>& data) {
  const auto [rows, inputs, outputs] = sizes_of(args.shape);
  const auto dy = data["dy"];
  const auto w = data["w"];
  const auto pre = data["pre"];
  const auto dx = data["dx"];
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < inputs; ++c) {
      S sum = 0;
      for (std::size_t o = 0; o < outputs; ++o) sum += dy[r * outputs + o] * w[o * inputs + c];
      dx[r * inputs + c] = args.through_gelu ? sum * gelu_slope_reference(pre[r * inputs + c]) : sum;
    }
  }
}

template <class S>
void reference(const GemmWeightGradient& args, ReferenceData<S>& data) {
  const auto [rows, inputs, outputs] = sizes_of(args.shape);
  const auto x = data["x"];
  const auto dy = data["dy"];
  const auto dw = data["dw"];
  const auto dbias = data["dbias"];
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t c = 0; c < inputs; ++c) dw[o * inputs + c] += dy[r * outputs + o] * x[r * inputs + c];
      if (args.with_bias) dbias[o] += dy[r * outputs + o];
    }
  }
}

template <class S>
void reference(const GemmBatched& args, ReferenceData<S>& data) {
  const auto a = data["a"];
  const auto b = data["b"];
  const auto c = data[args.adds ? "sum" : "c"];
  const auto [m, n, k] = std::array{elems_of(args.m), elems_of(args.n), elems_of(args.k)};
  const std::size_t batch = elems_of(args.batch);
  for (std::size_t e = 0; e < batch; ++e) {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        S sum = 0;
        for (std::size_t t = 0; t < k; ++t) {
          const S left = a[e * m * k + (args.transpose_a ? t * m + i : i * k + t)];
          const S right = b[e * k * n + (args.transpose_b ? j * k + t : t * n + j)];
          sum += left * right;
        }
        const std::size_t at = (e * m + i) * n + j;
        c[at] = args.adds ? c[at] + sum : S(args.alpha) * sum;
      }
    }
  }
}

}  // namespace lockstep::kernels
