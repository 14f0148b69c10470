#include "kernels/reduce/reduce.h"

#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/reduce.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using core::ReduceOp;

// The type in which T is added and multiplied: unsigned for integers, because signed overflow is undefined. The low
// bits are the same.
template <class T>
struct WrappingType {
  using Type = std::make_unsigned_t<T>;
};
template <>
struct WrappingType<float> {
  using Type = float;
};
template <>
struct WrappingType<double> {
  using Type = double;
};
template <class T>
using Wrapping = typename WrappingType<T>::Type;

template <ReduceOp kOp>
struct Combine {
  template <class T>
  static T scalar(T a, T b) {
    if constexpr (kOp == ReduceOp::max) return a < b ? b : a;
    if constexpr (kOp == ReduceOp::min) return b < a ? b : a;
    const auto x = static_cast<Wrapping<T>>(a);
    const auto y = static_cast<Wrapping<T>>(b);
    if constexpr (kOp == ReduceOp::prod) return static_cast<T>(x * y);
    return static_cast<T>(x + y);
  }
  template <class V>
  static HWY_INLINE V vector(V a, V b) {
    if constexpr (kOp == ReduceOp::prod) return hn::Mul(a, b);
    // Like scalar(), also for NaN and for zeros of both signs.
    if constexpr (kOp == ReduceOp::max) return hn::IfThenElse(hn::Lt(a, b), b, a);
    if constexpr (kOp == ReduceOp::min) return hn::IfThenElse(hn::Lt(b, a), b, a);
    if constexpr (kOp == ReduceOp::sum) return hn::Add(a, b);
  }
};

// Highway 1.0 has no vector multiply for 8 and 64-bit integers: those use the scalar loop.
template <class T, ReduceOp kOp>
constexpr bool kHasVector = !(kOp == ReduceOp::prod && !hwy::IsFloat<T>() && (sizeof(T) == 1 || sizeof(T) == 8));

// The divisor of an average: of the type itself for floats; an int for integers, because 200 ranks do not fit in an
// int8.
template <class T>
using Divisor = std::conditional_t<hwy::IsFloat<T>(), T, int>;

template <class T>
struct Pass {
  T* const* destinations;
  std::size_t num_destinations;
  const T* const* sources;
  std::size_t num_sources;
  Divisor<T> divisor;  // 0: none
};

template <class T>
T divided(T value, Divisor<T> divisor) {
  if (divisor == 0) return value;
  if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(value / static_cast<std::uint64_t>(divisor));
  } else {
    return static_cast<T>(value / divisor);
  }
}

template <ReduceOp kOp, class T>
void scalar_range(const Pass<T>& pass, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    T value = pass.sources[0][i];
    for (std::size_t k = 1; k < pass.num_sources; ++k) value = Combine<kOp>::scalar(value, pass.sources[k][i]);
    value = divided(value, pass.divisor);
    for (std::size_t d = 0; d < pass.num_destinations; ++d) pass.destinations[d][i] = value;
  }
}

// Returns how many elements precede the first one at which `pointer` is aligned to a whole vector.
template <class T>
std::size_t head_length(const T* pointer, std::size_t vector_bytes, std::size_t count) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(pointer) % vector_bytes;
  const std::size_t head = past == 0 ? 0 : (vector_bytes - past) / sizeof(T);
  return head < count ? head : count;
}

// Four vectors at a time: enough loads in flight to hide memory latency if there are few sources.
template <ReduceOp kOp, bool kStream, class T>
std::size_t vector_range(const Pass<T>& pass, std::size_t begin, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  using V = hn::Vec<decltype(d)>;
  const V divisor = hn::Set(d, static_cast<T>(pass.divisor));
  std::size_t i = begin;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const T* source = pass.sources[0] + i;
    prefetch_ahead(source, 4 * lanes * sizeof(T));
    V v0 = hn::LoadU(d, source);
    V v1 = hn::LoadU(d, source + lanes);
    V v2 = hn::LoadU(d, source + 2 * lanes);
    V v3 = hn::LoadU(d, source + 3 * lanes);
    for (std::size_t k = 1; k < pass.num_sources; ++k) {
      source = pass.sources[k] + i;
      prefetch_ahead(source, 4 * lanes * sizeof(T));
      v0 = Combine<kOp>::vector(v0, hn::LoadU(d, source));
      v1 = Combine<kOp>::vector(v1, hn::LoadU(d, source + lanes));
      v2 = Combine<kOp>::vector(v2, hn::LoadU(d, source + 2 * lanes));
      v3 = Combine<kOp>::vector(v3, hn::LoadU(d, source + 3 * lanes));
    }
    if constexpr (hwy::IsFloat<T>()) {
      if (pass.divisor != 0) {
        v0 = hn::Div(v0, divisor);
        v1 = hn::Div(v1, divisor);
        v2 = hn::Div(v2, divisor);
        v3 = hn::Div(v3, divisor);
      }
    }
    for (std::size_t t = 0; t < pass.num_destinations; ++t) {
      T* to = pass.destinations[t] + i;
      if constexpr (kStream) {
        hn::Stream(v0, d, to);
        hn::Stream(v1, d, to + lanes);
        hn::Stream(v2, d, to + 2 * lanes);
        hn::Stream(v3, d, to + 3 * lanes);
      } else {
        prefetch_ahead(to, 4 * lanes * sizeof(T));
        hn::StoreU(v0, d, to);
        hn::StoreU(v1, d, to + lanes);
        hn::StoreU(v2, d, to + 2 * lanes);
        hn::StoreU(v3, d, to + 3 * lanes);
      }
    }
  }
  return i;
}

// Streaming stores require all destinations to have the same alignment.
template <class T>
bool aligned_alike(const Pass<T>& pass, std::size_t vector_bytes) {
  for (std::size_t d = 1; d < pass.num_destinations; ++d) {
    const auto distance =
        reinterpret_cast<std::uintptr_t>(pass.destinations[d]) - reinterpret_cast<std::uintptr_t>(pass.destinations[0]);
    if (distance % vector_bytes != 0) return false;
  }
  return true;
}

template <ReduceOp kOp, class T>
void run_pass(const Pass<T>& pass, std::size_t count, bool bypass_cache) {
  std::size_t done = 0;
  const bool vector_division = hwy::IsFloat<T>() || pass.divisor == 0;
  if constexpr (kHasVector<T, kOp>) {
    const hn::ScalableTag<T> d;
    const std::size_t vector_bytes = hn::Lanes(d) * sizeof(T);
    if (vector_division && bypass_cache && aligned_alike(pass, vector_bytes)) {
      const std::size_t head = head_length(pass.destinations[0], vector_bytes, count);
      scalar_range<kOp>(pass, 0, head);
      done = vector_range<kOp, true>(pass, head, count);
      hwy::FlushStream();
    } else if (vector_division) {
      done = vector_range<kOp, false>(pass, 0, count);
    }
  }
  scalar_range<kOp>(pass, done, count);
}

template <ReduceOp kOp, class T>
void run_native(const ReduceArgs& args) {
  const auto* destinations = reinterpret_cast<T* const*>(args.destinations.data());
  const auto* sources = reinterpret_cast<const T* const*>(args.sources.data());
  const Pass<T> pass{destinations, args.destinations.size(), sources, args.sources.size(),
                     static_cast<Divisor<T>>(args.average_over)};
  run_pass<kOp>(pass, static_cast<std::size_t>(args.count), args.bypass_cache);
}

// Narrow floats are widened to f32, combined there, and rounded once at the end. The lanes of a pair hold elements in
// the same order for all arrays of one type.
template <ReduceOp kOp>
HWY_INLINE Pair combined(Pair x, Pair y) {
  return {Combine<kOp>::vector(x.a, y.a), Combine<kOp>::vector(x.b, y.b)};
}

// Computes elements [begin, begin + count) of the destination into `to`. `kTail`: fewer than a pair.
template <ReduceOp kOp, bool kTail, class T>
HWY_INLINE void narrow_pair(const ReduceArgs& args, std::size_t begin, std::size_t count, T* to) {
  const auto load_from = [&](std::size_t k) HWY_ATTR {
    const T* source = static_cast<const T*>(args.sources[k]) + begin;
    if constexpr (kTail) return load_pair_tail(source, count);
    if constexpr (sizeof(T) > 1)
      prefetch_ahead(source, pair_elems() * sizeof(T));  // not needed for fp8, which is bound by arithmetic
    return load_pair(source);
  };
  Pair total = load_from(0);
  for (std::size_t k = 1; k < args.sources.size(); ++k) total = combined<kOp>(total, load_from(k));
  if (args.average_over > 0) {
    const VF32 divisor = hn::Set(F32(), static_cast<float>(args.average_over));
    total = {hn::Div(total.a, divisor), hn::Div(total.b, divisor)};
  }
  if constexpr (kTail) {
    store_pair_tail(total, to, count);
  } else {
    if constexpr (sizeof(T) > 1) prefetch_ahead(to, pair_elems() * sizeof(T));
    store_pair(total, to);
  }
}

template <ReduceOp kOp, class T>
void narrow_range(const ReduceArgs& args, std::size_t begin, std::size_t count, T* to) {
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) narrow_pair<kOp, false>(args, begin + i, step, to + i);
  if (i < count) narrow_pair<kOp, true>(args, begin + i, count - i, to + i);
}

// A single destination is written in place; several get copies of a block that is still in the L1 cache.
template <ReduceOp kOp, class T>
void narrow_pass(const ReduceArgs& args) {
  const auto count = static_cast<std::size_t>(args.count);
  if (args.destinations.size() == 1) {
    const auto produce = [&](std::size_t i, std::size_t elems, T* to) { narrow_range<kOp>(args, i, elems, to); };
    return produce_elems(static_cast<T*>(args.destinations[0]), count, args.bypass_cache, 1, produce);
  }
  constexpr std::size_t kBlock = 1024;
  HWY_ALIGN T block[kBlock];
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t elems = count - i < kBlock ? count - i : kBlock;
    narrow_range<kOp>(args, i, elems, static_cast<T*>(block));
    for (void* destination : args.destinations) {
      T* const to = static_cast<T*>(destination) + i;
      if (args.bypass_cache) {
        stream_copy(block, to, elems * sizeof(T));
      } else {
        std::memcpy(to, block, elems * sizeof(T));
      }
    }
  }
  if (args.bypass_cache) hwy::FlushStream();
}

void run(const ReduceArgs& args) {
  with_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_op(args.op, [&](auto op) {
      if constexpr (std::is_arithmetic_v<T>) {
        run_native<decltype(op)::value, T>(args);
      } else {
        narrow_pass<decltype(op)::value, T>(args);
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(run);

// A copy moves bits, whatever their meaning, as 32-bit words if the size allows it.
bool is_plain_copy(const ReduceArgs& args) {
  return args.sources.size() == 1 && args.average_over <= 1;
}

void copy(const ReduceArgs& args) {
  const auto size_bytes = static_cast<std::size_t>(args.count) * core::size_of(args.dtype);
  if (!args.bypass_cache) {
    for (void* destination : args.destinations) {
      if (destination != args.sources[0]) std::memcpy(destination, args.sources[0], size_bytes);
    }
    return;
  }
  ReduceArgs bytes = args;
  bytes.dtype = core::DType::u8;
  bytes.op = core::ReduceOp::sum;
  bytes.average_over = 0;
  bytes.count = static_cast<std::int64_t>(size_bytes);
  HWY_DYNAMIC_DISPATCH(run)(bytes);
}

}  // namespace

void reduce(const ReduceArgs& args) {
  LOCKSTEP_CHECK(!args.sources.empty(), "reduce needs a source");
  if (args.count <= 0) return;
  if (is_plain_copy(args)) return copy(args);
  HWY_DYNAMIC_DISPATCH(run)(args);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
