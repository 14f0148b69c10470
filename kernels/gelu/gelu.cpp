#include "kernels/gelu/gelu.h"

#include "kernels/base/element_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu/gelu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"
#include "kernels/gelu/gelu_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward_range(const T* x, T* y, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(gelu(load(x + i)), y + i);
  if (i < count) store_tail(gelu(load_tail(x + i, count - i)), y + i, count - i);
}

template <class T>
void backward_range(const T* x, const T* dy, T* dx, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(hn::Mul(load(dy + i), gelu_slope(load(x + i))), dx + i);
  if (i == count) return;
  const VF32 tail = hn::Mul(load_tail(dy + i, count - i), gelu_slope(load_tail(x + i, count - i)));
  store_tail(tail, dx + i, count - i);
}

void forward(const GeluForward& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward_range(args.x.as<T>() + begin, args.y.as<T>() + begin, static_cast<std::size_t>(end - begin));
  });
}

void backward(const GeluBackward& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward_range(args.x.as<T>() + begin, args.dy.as<T>() + begin, args.dx.as<T>() + begin,
                   static_cast<std::size_t>(end - begin));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);
constexpr std::int64_t kGrain = 1024;  // elements
}  // namespace

Cost cost_of(const GeluForward& args) {
  return {9.0 * static_cast<double>(args.count), operand_bytes(args), ""};
}

Cost cost_of(const GeluBackward& args) {
  return {18.0 * static_cast<double>(args.count), operand_bytes(args), ""};
}

void run_cpu(const GeluForward& args, ThreadPool& pool) {
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(forward)(args, begin, end); });
}

void run_cpu(const GeluBackward& args, ThreadPool& pool) {
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(backward)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
