// Rotary position embedding: each pair of a head's columns is rotated by an angle that grows with the token's position
// (Su et al. 2021, arXiv:2104.09864, section 3.4.2).
//   pair i at position p rotates by p theta^(-2 i / head_columns):  (a, b) -> (a cos - b sin, a sin + b cos)
// The layouts differ in which columns form a pair:
//   halves  i and i + head_columns / 2, as in GPT-NeoX and Hugging Face's Llama ("rotate_half")
//   pairs   2 i and 2 i + 1, as in the paper, GPT-J and Meta's own Llama ("interleaved")
// The gradient is rotated back by the same angles. Angles are reduced in f64: they are exact for positions in sequences
// of any length, where f32 loses 2^-24 of the angle. Deterministic. NaN and infinity stay within their pair.
//
// Queries and keys are rotated in place inside of a fused QKV activation, in which they are adjacent heads.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

enum class RotaryPairs : std::uint8_t { halves, neighbours };

// Scaling for sequences longer than those that a model was first trained on, as in Llama 3.1 (huggingface/transformers,
// modeling_rope_utils.py, "llama3"): a pair that makes fewer than low_frequency turns in `positions` is slowed down by
// `factor`; one that makes more than high_frequency turns is not changed; between the two, the scaling is interpolated
// by the number of turns. Factor 1: none.
struct RotaryScaling {
  double factor = 1;
  double low_frequency = 1;
  double high_frequency = 4;
  double positions = 8192;
};

struct Rotary {
  static constexpr std::array kInPlace{InPlace{"y", "x"}};
  RotaryPairs pairs = RotaryPairs::halves;
  std::int64_t rows;    // tokens, sequence after sequence
  std::int64_t length;  // length of a sequence here: row r has position first_position + r % length
  std::int64_t heads;   // heads of queries, followed by heads of keys
  std::int64_t head_columns;
  std::int64_t stride = 0;          // elements from row to row; 0: heads * head_columns
  std::int64_t first_position = 0;  // position at which this rank's part of a sequence begins
  float theta = 10000;
  RotaryScaling scaling = {};
  bool backward = false;  // rotates back
  In x = {};              // [rows, heads, head_columns], strided
  Out y = {};             // as x, may be x

  std::string_view name() const { return backward ? "rotary_bwd" : "rotary_fwd"; }
  std::int64_t row() const { return heads * head_columns; }
  std::int64_t row_stride() const { return stride == 0 ? row() : stride; }
  std::int64_t extent() const { return (rows - 1) * row_stride() + row(); }
  Rows rows_of(std::string_view /*operand*/) const { return {.elems = row(), .stride = row_stride()}; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.extent(), kActivations);
    visit("y", self.y, self.extent(), DTypes(self.x.dtype));
  }
};

// How far each pair rotates from one position to the next, in turns of 2 pi: theta^(-2 i / head_columns) / (2 pi),
// scaled.
std::vector<double> rotary_turns(const Rotary& args);

// 6 FLOPs per pair; cosines and sines, which all heads share, are not counted.
Cost cost_of(const Rotary& args);

void run_cpu(const Rotary& args, ThreadPool& pool);
void run_cuda(const Rotary& args, CudaContext& cuda);

// Reference: plain loops, for tests.

// Computed as in transformers: by wavelengths.
inline double reference_frequency(const Rotary& args, double frequency) {
  const RotaryScaling& scaling = args.scaling;
  if (scaling.factor == 1) return frequency;
  const double wavelength = 2 * std::acos(-1.0) / frequency;
  if (wavelength < scaling.positions / scaling.high_frequency) return frequency;
  if (wavelength > scaling.positions / scaling.low_frequency) return frequency / scaling.factor;
  const double smooth =
      (scaling.positions / wavelength - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

template <class S>
void rotate_head_reference(const Rotary& args, std::int64_t position, std::span<const S> x, std::span<S> y) {
  const std::int64_t half = args.head_columns / 2;
  const bool halves = args.pairs == RotaryPairs::halves;
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.head_columns);
    const double frequency = std::pow(static_cast<double>(args.theta), exponent);
    const double angle = static_cast<double>(position) * reference_frequency(args, frequency);
    const S cosine(std::cos(angle));
    const S sine(args.backward ? -std::sin(angle) : std::sin(angle));
    const auto first = static_cast<std::size_t>(halves ? i : 2 * i);
    const auto second = static_cast<std::size_t>(halves ? i + half : 2 * i + 1);
    const S a = x[first];
    const S b = x[second];
    y[first] = a * cosine - b * sine;
    y[second] = a * sine + b * cosine;
  }
}

// The elements between rows keep the value with which tests fill outputs: NaN.
template <class S>
void reference(const Rotary& args, ReferenceData<S>& data) {
  const std::span<const S> x = data["x"];
  const std::span<S> y = data["y"];
  const auto stride = static_cast<std::size_t>(args.row_stride());
  const auto columns = static_cast<std::size_t>(args.head_columns);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (i % stride >= static_cast<std::size_t>(args.row())) y[i] = S(std::numeric_limits<double>::quiet_NaN());
  }
  for (std::int64_t row = 0; row < args.rows; ++row) {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const std::size_t at = static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(head) * columns;
      rotate_head_reference<S>(args, args.first_position + row % args.length, x.subspan(at, columns),
                               y.subspan(at, columns));
    }
  }
}

}  // namespace lockstep::kernels
