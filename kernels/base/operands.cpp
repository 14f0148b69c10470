#include "kernels/base/operands.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

std::string list_of(const DTypes& allowed) {
  std::string text;
  for (core::DType dtype : core::all_dtypes()) {
    if (!allowed.contains(dtype)) continue;
    if (!text.empty()) text += ", ";
    text += core::name_of(dtype);
  }
  return text;
}

void check_one(std::string_view kernel, const Operand& operand) {
  if (operand.elems != operand.expected_elems) {
    throw core::usage_error(fmt::format("{}: {} has {} elements; its shape requires {}", kernel, operand.name,
                                        operand.elems, operand.expected_elems));
  }
  if (!operand.allowed.contains(operand.dtype)) {
    throw core::usage_error(fmt::format("{}: {} is {}; allowed: {}", kernel, operand.name, core::name_of(operand.dtype),
                                        list_of(operand.allowed)));
  }
  if (operand.elems > 0 && operand.data == nullptr) {
    throw core::usage_error(fmt::format("{}: {} has no memory", kernel, operand.name));
  }
  const std::size_t alignment = core::size_of(operand.dtype);
  if (reinterpret_cast<std::uintptr_t>(operand.data) % alignment != 0) {
    throw core::usage_error(
        fmt::format("{}: {} is not aligned to its elements of {} bytes", kernel, operand.name, alignment));
  }
}

// Returns whether all rows of each lie between rows of the other: b's offset within a's stride is past a's row and
// before the next row.
bool interleaved(const Operand& a, const Operand& b) {
  if (a.rows.stride == 0 || a.rows.stride != b.rows.stride || a.dtype != b.dtype) return false;
  const std::size_t stride_bytes = size_bytes(a.dtype, a.rows.stride);
  const auto offset = [&](const Operand& operand) {
    return reinterpret_cast<std::uintptr_t>(operand.data) % stride_bytes;
  };
  const std::size_t b_after_a = (offset(b) + stride_bytes - offset(a)) % stride_bytes;
  return b_after_a >= size_bytes(a.dtype, a.rows.elems) &&
         b_after_a + size_bytes(b.dtype, b.rows.elems) <= stride_bytes;
}

bool overlap(const Operand& a, const Operand& b) {
  if (interleaved(a, b)) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a_begin < b_begin + size_bytes(b.dtype, b.elems) && b_begin < a_begin + size_bytes(a.dtype, a.elems);
}

bool is_in_place(const Operand& a, const Operand& b, std::span<const InPlace> in_place) {
  if (a.data != b.data || a.elems != b.elems || a.dtype != b.dtype) return false;
  return std::any_of(in_place.begin(), in_place.end(), [&](const InPlace& pair) {
    return (pair.written == a.name && pair.read == b.name) || (pair.written == b.name && pair.read == a.name);
  });
}

}  // namespace

void check_operands(std::string_view kernel, const std::vector<Operand>& operands, std::span<const InPlace> in_place) {
  for (const Operand& operand : operands) check_one(kernel, operand);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    for (std::size_t j = i + 1; j < operands.size(); ++j) {
      const Operand& a = operands[i];
      const Operand& b = operands[j];
      if (a.access == Access::read && b.access == Access::read) continue;
      if (!overlap(a, b) || is_in_place(a, b, in_place)) continue;
      throw core::usage_error(fmt::format("{}: {} and {} overlap", kernel, a.name, b.name));
    }
  }
}

void check_at_least(std::string_view kernel, std::string_view name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw core::usage_error(fmt::format("{}: {} is {}; allowed: at least {}", kernel, name, value, least));
}

void check_at_most(std::string_view kernel, std::string_view name, std::int64_t value, std::int64_t most,
                   std::string_view what) {
  if (value <= most) return;
  throw core::usage_error(
      fmt::format("{}: {} is {}; allowed: at most {}{}{}", kernel, name, value, most, what.empty() ? "" : ", ", what));
}

void check_divides(std::string_view kernel, std::string_view name, std::int64_t value, std::string_view whole_name,
                   std::int64_t whole) {
  if (whole % value == 0) return;
  throw core::usage_error(
      fmt::format("{}: {} is {}; allowed: divisors of {}, {}", kernel, name, value, whole_name, whole));
}

void check_sizes(std::string_view kernel, std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes) {
  for (const auto& [name, value] : sizes) check_at_least(kernel, name, value, 1);
}

namespace {

void check_that(bool good, std::string_view kernel, std::string_view name, float value, std::string_view allowed) {
  if (good) return;
  throw core::usage_error(fmt::format("{}: {} is {}; allowed: {}", kernel, name, value, allowed));
}

}  // namespace

void check_finite(std::string_view kernel, std::string_view name, float value) {
  check_that(std::isfinite(value), kernel, name, value, "finite numbers");
}

void check_positive(std::string_view kernel, std::string_view name, float value) {
  check_that(std::isfinite(value) && value > 0, kernel, name, value, "finite numbers above 0");
}

void check_not_negative(std::string_view kernel, std::string_view name, float value) {
  check_that(std::isfinite(value) && value >= 0, kernel, name, value, "finite numbers, at least 0");
}

void check_fraction(std::string_view kernel, std::string_view name, float value) {
  check_that(value >= 0 && value < 1, kernel, name, value, "at least 0 and below 1");
}

}  // namespace lockstep::kernels
