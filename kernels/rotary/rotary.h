// Rotary position embedding: each pair of a head's columns is turned by an angle that grows with the token's position
// (Su et al. 2021, arXiv:2104.09864, section 3.4.2).
//   pair i of position p turns by p theta^(-2 i / head_columns):  (a, b) -> (a cos - b sin, a sin + b cos)
// Which columns are a pair differs:
//   halves  i and i + head_columns / 2, as GPT-NeoX and Hugging Face's Llama have it ("rotate_half")
//   pairs   2 i and 2 i + 1, as the paper, GPT-J and Meta's own Llama have it ("interleaved")
// The gradient is turned back by the same angles. Angles are reduced in f64: they are exact for positions of any
// length, where f32 loses 2^-24 of the angle. Deterministic. NaN and infinity stay within their pair.
//
// Queries and keys are turned in place, inside of a fused QKV activation: they are heads beside each other.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

enum class RotaryPairs : std::uint8_t { halves, neighbours };

// Turns for longer sequences than a model was first trained on, as Llama 3.1 has them (huggingface/transformers,
// modeling_rope_utils.py, "llama3"): a pair that turns around less than low_frequency times in `positions` is slowed
// down by `factor`, one that does more than high_frequency times is left alone, and between the two the share of the
// slowing falls with the number of times. Factor 1: none.
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
  std::int64_t length;  // of a sequence here: row r has the position first_position + r % length
  std::int64_t heads;   // of queries, and of keys behind them
  std::int64_t head_columns;
  std::int64_t stride = 0;          // elements from row to row; 0: heads * head_columns
  std::int64_t first_position = 0;  // of this rank's part of a sequence
  float theta = 10000;
  RotaryScaling scaling = {};
  bool backward = false;  // turns back
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

// How far each pair turns from one position to the next, in turns of 2 pi: theta^(-2 i / head_columns) / (2 pi),
// scaled.
std::vector<double> rotary_turns(const Rotary& args);

// 6 FLOPs a pair; cosines and sines, of which all heads share each, are not counted.
Cost cost_of(const Rotary& args);

void run_cpu(const Rotary& args, ThreadPool& pool);
void run_cuda(const Rotary& args, CudaContext& cuda);

}  // namespace lockstep::kernels
