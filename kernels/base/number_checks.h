// Checks of floating point numbers among a kernel's arguments; operands.h has those of integers.
#pragma once

#include <string_view>

namespace lockstep::kernels {

// Each throws a usage Error "KERNEL: NAME is VALUE; allowed: ...". NaN is never allowed.
void check_finite(std::string_view kernel, std::string_view name, float value);
void check_positive(std::string_view kernel, std::string_view name, float value);      // above 0 and finite
void check_not_negative(std::string_view kernel, std::string_view name, float value);  // at least 0 and finite
void check_fraction(std::string_view kernel, std::string_view name, float value);      // at least 0 and below 1

}  // namespace lockstep::kernels
