#include "kernels/base/kernel_case.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "core/dtype.h"
#include "core/random.h"

namespace lockstep::kernels {
namespace {

using core::DType;

double uniform(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double drawn(const Draw& draw, std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = core::hash64(seed, index);
  switch (draw.kind) {
    case Draw::Kind::normal: {  // Box and Muller 1958
      const double radius = std::sqrt(-2 * std::log(1 - uniform(bits)));
      return draw.scale * radius * std::cos(2 * std::numbers::pi * uniform(core::mix64(bits)));
    }
    case Draw::Kind::positive:
      return draw.scale * (0.5 + 0.5 * uniform(bits));
    case Draw::Kind::index:
      return std::floor(uniform(bits) * static_cast<double>(draw.below));
    case Draw::Kind::given:
      return draw.values.at(index % draw.values.size());
    case Draw::Kind::zero:
      break;
  }
  return 0;
}

std::vector<double> rounded(std::vector<double> values, DType dtype) {
  std::vector<std::byte> memory(size_bytes(dtype, static_cast<std::int64_t>(values.size())));
  store(values, dtype, memory.data());
  return load(dtype, memory.data(), static_cast<std::int64_t>(values.size()));
}

}  // namespace

std::string KernelCase::name() const {
  return kernel + "/" + std::string(short_name_of(dtype)) + "/" + shape;
}

ReferenceData<double> draw_inputs(const KernelCase& kernel_case, std::uint64_t seed) {
  ReferenceData<double> data;
  for (std::size_t k = 0; k < kernel_case.operands.size(); ++k) {
    const CaseOperand& operand = kernel_case.operands[k];
    std::vector<double> values(static_cast<std::size_t>(operand.elems), 0.0);
    if (operand.access != Access::write) {
      const std::uint64_t of_operand = core::hash64(seed, k);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = drawn(operand.draw, of_operand, i);
      values = rounded(std::move(values), operand.dtype);
    }
    data.add(operand.name, std::move(values));
  }
  if (!kernel_case.derive) return data;
  kernel_case.derive(data);
  for (std::size_t k = 0; k < kernel_case.operands.size(); ++k) {
    auto& values = data.arrays()[k].second;
    if (kernel_case.operands[k].access == Access::write) {
      values.assign(values.size(), 0.0);
    } else {
      values = rounded(std::move(values), kernel_case.operands[k].dtype);
    }
  }
  return data;
}

double allowed_error(const CaseOperand& operand, double wanted, double largest) {
  if (!core::is_floating(operand.dtype)) return 0;
  constexpr double kLambda = 8;
  const double unit = std::ldexp(1.0, -core::significand_bits(operand.dtype));
  const double f32_unit = std::ldexp(1.0, -core::significand_bits(DType::f32));
  const double of_factors = operand.rounded_factors ? unit * largest : 0;
  return 2 * unit * std::fabs(wanted) + of_factors +
         kLambda * std::sqrt(static_cast<double>(operand.terms)) * f32_unit * largest;
}

// store() and load() of kernel_case.h: conversion between f64 and every dtype.
namespace {

template <class T>
T narrowed(double x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(x);
  } else if constexpr (std::is_same_v<T, core::Float16>) {
    return core::to_float16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, core::BFloat16>) {
    return core::to_bfloat16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, core::Float8E4M3>) {
    return core::to_float8_e4m3(static_cast<float>(x));
  } else {
    return core::to_float8_e5m2(static_cast<float>(x));
  }
}

template <class T>
double widened(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(x);
  } else {
    return static_cast<double>(core::to_float(x));
  }
}

}  // namespace

void store(std::span<const double> values, DType dtype, void* memory) {
  with_type(dtype, [&](auto element) {
    auto* to = static_cast<std::byte*>(memory);
    for (double value : values) {
      element = narrowed<decltype(element)>(value);
      std::memcpy(to, &element, sizeof element);
      to += sizeof element;
    }
  });
}

std::vector<double> load(DType dtype, const void* memory, std::int64_t elems) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(elems));
  with_type(dtype, [&](auto element) {
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
