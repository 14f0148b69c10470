// Operands of kernels: dense arrays in the memory of one device, and how a kernel accesses them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"

namespace lockstep::kernels {

// Views own nothing. A view without elements is an operand that is left out, if the kernel allows it.
struct In {  // read
  const void* data = nullptr;
  core::DType dtype = core::DType::f32;
  std::int64_t elems = 0;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  bool given() const { return elems != 0; }
};

struct Out {  // written, every element; not read
  void* data = nullptr;
  core::DType dtype = core::DType::f32;
  std::int64_t elems = 0;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  bool given() const { return elems != 0; }
};

struct InOut {  // read and written
  void* data = nullptr;
  core::DType dtype = core::DType::f32;
  std::int64_t elems = 0;

  In in() const { return {data, dtype, elems}; }
  Out out() const { return {data, dtype, elems}; }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  bool given() const { return elems != 0; }
};

enum class Access : std::uint8_t { read, write, update };
constexpr Access access_of(const In& /*view*/) {
  return Access::read;
}
constexpr Access access_of(const Out& /*view*/) {
  return Access::write;
}
constexpr Access access_of(const InOut& /*view*/) {
  return Access::update;
}

// A set of dtypes that an operand may have.
class DTypes {
 public:
  constexpr DTypes(core::DType one) : DTypes({one}) {}  // NOLINT(google-explicit-constructor): a set of one
  constexpr DTypes(std::initializer_list<core::DType> members) {
    for (core::DType member : members) bits_ |= 1u << static_cast<unsigned>(member);
  }
  constexpr bool contains(core::DType dtype) const { return (bits_ >> static_cast<unsigned>(dtype) & 1u) != 0; }
  constexpr std::optional<core::DType> only_one() const {
    if (!std::has_single_bit(bits_)) return std::nullopt;
    return static_cast<core::DType>(std::countr_zero(bits_));
  }

 private:
  std::uint32_t bits_ = 0;
};

// The dtypes of activations and weights. Sums over them are computed in f32.
inline constexpr DTypes kActivations{core::DType::f32, core::DType::bf16, core::DType::f16};
inline constexpr DTypes kF32{core::DType::f32};
inline constexpr DTypes kI32{core::DType::i32};

inline std::size_t size_bytes(core::DType dtype, std::int64_t elems) {
  return core::size_of(dtype) * static_cast<std::size_t>(elems);
}

// From a run-time dtype to the C++ type of an element.

// Calls visit(T{}) with the type of an activation's element: float, BFloat16 or Float16. Other dtypes are a bug of
// ours, because arguments have been checked before.
template <class Visit>
void with_activation_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::f32:
      return visit(float{});
    case core::DType::bf16:
      return visit(core::BFloat16{});
    case core::DType::f16:
      return visit(core::Float16{});
    default:
      LOCKSTEP_CHECK(false, "not an activation's dtype");
  }
}

// The same for all floats up to f32.
template <class Visit>
void with_float_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::f8e4m3:
      return visit(core::Float8E4M3{});
    case core::DType::f8e5m2:
      return visit(core::Float8E5M2{});
    default:
      return with_activation_type(dtype, std::forward<Visit>(visit));
  }
}

// The same for every dtype.
template <class Visit>
void with_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::i8:
      return visit(std::int8_t{});
    case core::DType::u8:
      return visit(std::uint8_t{});
    case core::DType::i32:
      return visit(std::int32_t{});
    case core::DType::u32:
      return visit(std::uint32_t{});
    case core::DType::i64:
      return visit(std::int64_t{});
    case core::DType::u64:
      return visit(std::uint64_t{});
    case core::DType::f64:
      return visit(double{});
    default:
      return with_float_type(dtype, std::forward<Visit>(visit));
  }
}

// Calls visit(std::integral_constant<ReduceOp, op>); an average is a sum that is divided at the end.
template <class Visit>
void with_op(core::ReduceOp op, Visit&& visit) {
  using core::ReduceOp;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return visit(std::integral_constant<ReduceOp, ReduceOp::sum>{});
    case ReduceOp::prod:
      return visit(std::integral_constant<ReduceOp, ReduceOp::prod>{});
    case ReduceOp::max:
      return visit(std::integral_constant<ReduceOp, ReduceOp::max>{});
    case ReduceOp::min:
      return visit(std::integral_constant<ReduceOp, ReduceOp::min>{});
  }
}

}  // namespace lockstep::kernels
