#include "kernels/activation/activation.h"

#include <type_traits>

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/activation/gelu_math-inl.h"
#include "kernels/base/vector_map-inl.h"
#include "kernels/base/vector_math-inl.h"
#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
constexpr bool kRough = std::is_same_v<T, core::BFloat16>;

template <class T>
struct Gelu {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 x) const { return gelu<kRough<T>>(x); }
};
template <class T>
struct GeluGradient {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 x, VF32 dy) const { return hn::Mul(dy, gelu_slope<kRough<T>>(x)); }
};

void gelu_forward(const GeluForward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(Gelu<T>(), stream, count, args.y.as<T>() + begin, args.x.as<T>() + begin);
  });
}

void gelu_backward(const GeluBackward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(GeluGradient<T>(), stream, count, args.dx.as<T>() + begin, args.x.as<T>() + begin,
              args.dy.as<T>() + begin);
  });
}

// e^-88 is below the rounding of any f32, and 1 / e^30 below the rounding of 1.
constexpr float kLowGate = -88.0F;
constexpr float kHighGate = 30.0F;

// s = e^g / (1 + e^g) and 1 - s, for a gate that is not below kLowGate; neither loses digits. Results that are rounded
// to BFloat16 allow relative errors of up to 1.5e-4 (gelu_math-inl.h).
struct Sigmoid {
  VF32 s;
  VF32 rest;
};
template <class T>
HWY_INLINE Sigmoid sigmoid(VF32 gate) {
  const VF32 e = weight_f32 < kRough<T> ? 3 : 5 > (at_most(kHighGate, gate));
  const VF32 sum = hn::Add(e, hn::Set(F32(), 1.0F));
  const VF32 rest = kRough<T> ? rough_reciprocal_of_normal_f32(sum) : reciprocal_of_normal_f32(sum);
  return {hn::Mul(e, rest), rest};
}

template <class T>
struct Swiglu {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up) const {
    const VF32 low = at_least(kLowGate, gate);
    return hn::Mul(hn::Mul(low, sigmoid<T>(low).s), up);
  }
};

template <class T>
struct GateGradient {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up, VF32 dy) const {
    const VF32 low = at_least(kLowGate, gate);
    const Sigmoid of_gate = sigmoid<T>(low);
    const VF32 bent = hn::MulAdd(at_most(kHighGate, low), of_gate.rest, hn::Set(F32(), 1.0F));
    return hn::Mul(hn::Mul(dy, up), hn::Mul(of_gate.s, bent));
  }
};

void swiglu_forward(const SwigluForward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const gate = args.x.as<T>() + 2 * r * args.columns;
      map_elems(Swiglu<T>(), stream, static_cast<std::size_t>(args.columns), args.y.as<T>() + r * args.columns, gate,
                gate + args.columns);
    }
  });
}

// Computes both gradients of one row: inputs may overlap with outputs.
template <bool kStream, class T>
void backward_row(const T* gate, const T* up, const T* dy, T* d_gate, T* d_up, std::size_t columns) {
  for_pairs<T>(columns, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair g = part.load(gate + i);
    const Pair u = part.load(up + i);
    const Pair d = part.load(dy + i);
    put_pair<GateGradient<T>, kStream>(part, applied(GateGradient<T>(), g, u, d), d_gate + i);
    put_pair<Swiglu<T>, kStream>(part, applied(Swiglu<T>(), g, d), d_up + i);
  });
}

void swiglu_backward(const SwigluBackward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto columns = static_cast<std::size_t>(args.columns);
    const bool past_caches = stream && args.dx.data != args.x.data && rows_are_aligned(args.dx.as<T>(), columns);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const gate = args.x.as<T>() + 2 * r * args.columns;
      const T* const dy = args.dy.as<T>() + r * args.columns;
      T* const d_gate = args.dx.as<T>() + 2 * r * args.columns;
      if (past_caches) {
        backward_row<true>(gate, gate + columns, dy, d_gate, d_gate + columns, columns);
      } else {
        backward_row<false>(gate, gate + columns, dy, d_gate, d_gate + columns, columns);
      }
    }
    if (past_caches) hwy::FlushStream();
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(gelu_forward);
HWY_EXPORT(gelu_backward);
constexpr std::int64_t kGrain = 1024;  // elements
HWY_EXPORT(swiglu_forward);
HWY_EXPORT(swiglu_backward);
}  // namespace

Cost cost_of(const GeluForward& args) {
  return cost_of_operands(9.0 * static_cast<double>(args.count), args);
}

Cost cost_of(const GeluBackward& args) {
  return cost_of_operands(18.0 * static_cast<double>(args.count), args);
}

void run_cpu(const GeluForward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(gelu_forward)(args, stream, begin, end);
  });
}

void run_cpu(const GeluBackward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.dx.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(gelu_backward)(args, stream, begin, end);
  });
}

Cost cost_of(const SwigluForward& args) {
  return cost_of_operands(4.0 * static_cast<double>(args.rows * args.columns), args);
}

Cost cost_of(const SwigluBackward& args) {
  return cost_of_operands(11.0 * static_cast<double>(args.rows * args.columns), args);
}

void run_cpu(const SwigluForward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.rows * args.columns));
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(swiglu_forward)(args, stream, begin, end);
  });
}

void run_cpu(const SwigluBackward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.dx.dtype, 2 * args.rows * args.columns));
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(swiglu_backward)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
