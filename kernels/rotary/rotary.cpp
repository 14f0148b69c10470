#include "kernels/rotary/rotary.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotary.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_map-inl.h"

// Shared by all targets, each of which includes this file.
#ifndef LOCKSTEP_KERNELS_ROTARY_MEMORY
#define LOCKSTEP_KERNELS_ROTARY_MEMORY
namespace lockstep::kernels {
namespace {

// A thread's memory for the current row, in whole pairs of vectors of any target.
struct RotaryMemory {
  // `memory` has elems(head_columns) floats, and must outlive this.
  RotaryMemory(std::int64_t head_columns, float* memory)
      : padded(elems(head_columns) / 4),
        fractions(memory),
        quarters(memory + padded),
        cosines(memory + 2 * padded),
        sines(memory + 3 * padded) {}

  static std::size_t elems(std::int64_t head_columns) {
    return 4 * ((static_cast<std::size_t>(head_columns / 2) + kMostPair - 1) / kMostPair * kMostPair);
  }

  static constexpr std::size_t kMostPair = 32;  // floats
  std::size_t padded;
  float* fractions;  // rest of an angle beyond whole quarter turns: -1/8 to 1/8 of a turn
  float* quarters;   // 0 to 3
  float* cosines;    // [head_columns / 2]
  float* sines;
};

}  // namespace
}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Subtracts whole quarter turns in f64: adding 1.5 * 2^52 rounds. Turns are below 2^31.
HWY_ATTR void reduce_angles(double position, const double* turns, std::size_t count, const RotaryMemory& memory) {
  constexpr double kMagic = 6755399441055744.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double all_quarters = 4 * position * turns[i];
    const double quarters = (all_quarters + kMagic) - kMagic;
    const double whole_turns = (quarters * 0.25 - 0.375 + kMagic) - kMagic;
    memory.fractions[i] = static_cast<float>((all_quarters - quarters) * 0.25);
    memory.quarters[i] = static_cast<float>(quarters - 4 * whole_turns);
  }
}

// Taylor's series up to x^9 and x^8: within pi / 4 of 0, the truncation error is below 3e-9 of the sine and 4e-8 of the
// cosine.
HWY_INLINE VF32 small_sine(VF32 x, VF32 square) {
  const F32 d;
  VF32 p = hn::MulAdd(hn::Set(d, 1.0F / 362880), square, hn::Set(d, -1.0F / 5040));
  p = hn::MulAdd(p, square, hn::Set(d, 1.0F / 120));
  p = hn::MulAdd(p, square, hn::Set(d, -1.0F / 6));
  return hn::MulAdd(hn::Mul(p, square), x, x);
}
HWY_INLINE VF32 small_cosine(VF32 square) {
  const F32 d;
  VF32 p = hn::MulAdd(hn::Set(d, 1.0F / 40320), square, hn::Set(d, -1.0F / 720));
  p = hn::MulAdd(p, square, hn::Set(d, 1.0F / 24));
  p = hn::MulAdd(p, square, hn::Set(d, -0.5F));
  return hn::MulAdd(p, square, hn::Set(d, 1.0F));
}

void make_cosines(const Rotary& args, std::int64_t position, const double* turns, const RotaryMemory& memory) {
  const F32 d;
  reduce_angles(static_cast<double>(position), turns, static_cast<std::size_t>(args.head_columns / 2), memory);
  for (std::size_t i = 0; i < memory.padded; i += lanes_f32()) {
    const VF32 x = hn::Mul(load(memory.fractions + i), hn::Set(d, 6.283185307179586F));
    const VF32 square = hn::Mul(x, x);
    const VF32 sine = small_sine(x, square);
    const VF32 cosine = small_cosine(square);
    const VF32 quarter = load(memory.quarters + i);
    const VF32 one = hn::Set(d, 1.0F);
    const VF32 two = hn::Set(d, 2.0F);
    const auto odd = hn::Or(hn::Eq(quarter, one), hn::Eq(quarter, hn::Set(d, 3.0F)));
    const auto cosine_falls = hn::Or(hn::Eq(quarter, one), hn::Eq(quarter, two));
    const auto sine_falls = hn::Ge(quarter, two);
    const VF32 of_cosine = hn::IfThenElse(odd, sine, cosine);
    const VF32 of_sine = hn::IfThenElse(odd, cosine, sine);
    store(hn::IfThenElse(cosine_falls, hn::Neg(of_cosine), of_cosine), memory.cosines + i);
    const auto negative = args.backward ? hn::Not(sine_falls) : sine_falls;
    store(hn::IfThenElse(negative, hn::Neg(of_sine), of_sine), memory.sines + i);
  }
}

struct Turned {
  VF32 a;
  VF32 b;
};
HWY_INLINE Turned turned(VF32 a, VF32 b, VF32 cosine, VF32 sine) {
  return {hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), hn::MulAdd(a, sine, hn::Mul(b, cosine))};
}

// Converts numbers to the lane order of pairs of T, once for all heads.
template <class T>
HWY_INLINE void order_as_pairs(float* numbers, std::size_t count) {
  if constexpr (!EvenAndOdd<T>) return;
  for (std::size_t i = 0; i < count; i += pair_elems()) {
    const Pair pair = load_in_order<T>(numbers + i);
    store(pair.a, numbers + i);
    store(pair.b, numbers + i + lanes_f32());
  }
}

template <class T>
HWY_INLINE void turn_halves(const T* x, T* y, std::size_t half, const RotaryMemory& memory) {
  for_pairs<T>(half, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair a = part.load(x + i);
    const Pair b = part.load(x + half + i);
    const Pair cosine = load_pair(memory.cosines + i);
    const Pair sine = load_pair(memory.sines + i);
    const Turned first = turned(a.a, b.a, cosine.a, sine.a);
    const Turned second = turned(a.b, b.b, cosine.b, sine.b);
    part.store({first.a, second.a}, y + i);
    part.store({first.b, second.b}, y + half + i);
  });
}

// Separates the even elements of a pair of vectors from the odd ones, each in order.
template <class T>
HWY_INLINE Pair even_and_odd(Pair elems) {
  if constexpr (EvenAndOdd<T>) return elems;
  HWY_ALIGN float all[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  store_pair(elems, all);
  Pair split;
  hn::LoadInterleaved2(F32(), all, split.a, split.b);
  return split;
}
template <class T>
HWY_INLINE Pair in_order(Pair split) {
  if constexpr (EvenAndOdd<T>) return split;
  HWY_ALIGN float all[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  hn::StoreInterleaved2(split.a, split.b, F32(), all);
  return load_pair(all);
}

template <class T>
HWY_INLINE void turn_neighbours(const T* x, T* y, std::size_t half, const RotaryMemory& memory) {
  for_pairs<T>(2 * half, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair split = even_and_odd<T>(part.load(x + i));
    const Turned pair = turned(split.a, split.b, load(memory.cosines + i / 2), load(memory.sines + i / 2));
    part.store(in_order<T>({pair.a, pair.b}), y + i);
  });
}

void turn_rows(const Rotary& args, const double* turns, std::int64_t begin, std::int64_t end,
               const RotaryMemory& memory) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto half = static_cast<std::size_t>(args.head_columns / 2);
    for (std::int64_t row = begin; row < end; ++row) {
      make_cosines(args, args.first_position + row % args.length, turns, memory);
      if (args.pairs == RotaryPairs::halves) {
        order_as_pairs<T>(memory.cosines, memory.padded);
        order_as_pairs<T>(memory.sines, memory.padded);
      }
      const T* x = args.x.as<T>() + row * args.row_stride();
      T* y = args.y.as<T>() + row * args.row_stride();
      for (std::int64_t head = 0; head < args.heads; ++head, x += args.head_columns, y += args.head_columns) {
        if (args.pairs == RotaryPairs::halves) {
          turn_halves(x, y, half, memory);
        } else {
          turn_neighbours(x, y, half, memory);
        }
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(turn_rows);
}  // namespace

void Rotary::check_shape() const {
  check_sizes(name(), {{"rows", rows}, {"length", length}, {"heads", heads}});
  check_at_least(name(), "head_columns", head_columns, 2);
  check_at_least(name(), "first_position", first_position, 0);
  if (stride != 0) check_at_least(name(), "stride", stride, row());
  if (head_columns % 2 != 0) {
    throw core::usage_error(std::string(name()) + ": head_columns is " + std::to_string(head_columns) +
                            "; allowed: even numbers");
  }
  if (!(theta > 1)) {
    throw core::usage_error(std::string(name()) + ": theta is " + std::to_string(theta) + "; allowed: above 1");
  }
  if (!(scaling.factor >= 1) || !(scaling.low_frequency < scaling.high_frequency) || !(scaling.positions >= 1)) {
    throw core::usage_error(std::string(name()) +
                            ": scaling of turns; allowed: a factor of 1 or more, a low frequency below the high one");
  }
}

namespace {

double scaled_turn(const RotaryScaling& scaling, double turn) {
  if (scaling.factor == 1) return turn;
  const double times = turn * scaling.positions;
  const double kept =
      std::clamp((times - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0, 1.0);
  return turn * (kept + (1 - kept) / scaling.factor);
}

}  // namespace

std::vector<double> rotary_turns(const Rotary& args) {
  constexpr double kTwoPi = 6.283185307179586;
  std::vector<double> turns(static_cast<std::size_t>(args.head_columns / 2));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.head_columns);
    turns[i] = scaled_turn(args.scaling, std::pow(static_cast<double>(args.theta), exponent) / kTwoPi);
  }
  return turns;
}

Cost cost_of(const Rotary& args) {
  return cost_of_operands(3.0 * static_cast<double>(args.rows * args.row()), args);
}

void run_cpu(const Rotary& args, ThreadPool& pool) {
  const std::vector<double> turns = rotary_turns(args);
  constexpr std::int64_t kRowsPerPiece = 8;
  const std::size_t elems = RotaryMemory::elems(args.head_columns);
  pool.for_pieces((args.rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](std::int64_t piece, int thread) {
    const RotaryMemory memory(args.head_columns, pool.scratch_of<float>(thread, elems).data());
    const std::int64_t begin = piece * kRowsPerPiece;
    const std::int64_t end = begin + kRowsPerPiece < args.rows ? begin + kRowsPerPiece : args.rows;
    HWY_DYNAMIC_DISPATCH(turn_rows)(args, turns.data(), begin, end, memory);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
