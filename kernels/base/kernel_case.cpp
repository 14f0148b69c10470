#include "kernels/base/kernel_case.h"

#include <cmath>
#include <numbers>

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

ReferenceData<double> draw_inputs(const KernelCase& one, std::uint64_t seed) {
  ReferenceData<double> data;
  for (std::size_t k = 0; k < one.operands.size(); ++k) {
    const CaseOperand& operand = one.operands[k];
    std::vector<double> values(static_cast<std::size_t>(operand.elems), 0.0);
    if (operand.access != Access::write) {
      const std::uint64_t of_operand = core::hash64(seed, k);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = drawn(operand.draw, of_operand, i);
      values = rounded(std::move(values), operand.dtype);
    }
    data.add(operand.name, std::move(values));
  }
  if (!one.derive) return data;
  one.derive(data);
  for (std::size_t k = 0; k < one.operands.size(); ++k) {
    auto& values = data.arrays()[k].second;
    if (one.operands[k].access == Access::write) {
      values.assign(values.size(), 0.0);
    } else {
      values = rounded(std::move(values), one.operands[k].dtype);
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

}  // namespace lockstep::kernels
