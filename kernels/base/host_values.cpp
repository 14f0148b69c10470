// store() and load() of kernel_case.h: conversion between f64 and every dtype.
#include <cstring>

#include "core/narrow_float.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {
namespace {

using core::DType;

// Calls visit(from double to T, from T to double) with the dtype's own conversions.
template <class Visit>
void with_conversions(DType dtype, Visit&& visit) {
  const auto plain = [&visit](auto zero) {
    using T = decltype(zero);
    visit([](double x) { return static_cast<T>(x); }, [](T x) { return static_cast<double>(x); });
  };
  const auto narrow = [&visit](auto from_float) {
    using T = decltype(from_float(0.0F));
    visit([from_float](double x) { return from_float(static_cast<float>(x)); },
          [](T x) { return static_cast<double>(core::to_float(x)); });
  };
  switch (dtype) {
    case DType::i8:
      return plain(std::int8_t{});
    case DType::u8:
      return plain(std::uint8_t{});
    case DType::i32:
      return plain(std::int32_t{});
    case DType::u32:
      return plain(std::uint32_t{});
    case DType::i64:
      return plain(std::int64_t{});
    case DType::u64:
      return plain(std::uint64_t{});
    case DType::f32:
      return plain(float{});
    case DType::f64:
      return plain(double{});
    case DType::f16:
      return narrow(core::to_float16);
    case DType::bf16:
      return narrow(core::to_bfloat16);
    case DType::f8e4m3:
      return narrow(core::to_float8_e4m3);
    case DType::f8e5m2:
      return narrow(core::to_float8_e5m2);
  }
}

}  // namespace

void store(std::span<const double> values, DType dtype, void* memory) {
  with_conversions(dtype, [&](auto narrowed, auto /*widened*/) {
    auto* to = static_cast<std::byte*>(memory);
    for (double value : values) {
      const auto element = narrowed(value);
      std::memcpy(to, &element, sizeof element);
      to += sizeof element;
    }
  });
}

std::vector<double> load(DType dtype, const void* memory, std::int64_t elems) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(elems));
  with_conversions(dtype, [&](auto narrowed, auto widened) {
    decltype(narrowed(0.0)) element;
    const auto* from = static_cast<const std::byte*>(memory);
    for (std::int64_t i = 0; i < elems; ++i) {
      std::memcpy(&element, from, sizeof element);
      values.push_back(widened(element));
      from += sizeof element;
    }
  });
  return values;
}

}  // namespace lockstep::kernels
