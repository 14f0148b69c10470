#include "kernels/base/number_checks.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace lockstep::kernels {
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
