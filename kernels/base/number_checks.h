// Checks of the numbers among a kernel's arguments, beside those of its integers in operands.h.
#pragma once

#include <string_view>

namespace lockstep::kernels {

// Each throws a usage Error "KERNEL: NAME is VALUE; allowed: ...". NaN is never allowed.
void check_finite(std::string_view kernel, std::string_view name, float value);
void check_positive(std::string_view kernel, std::string_view name, float value);      // above 0 and finite
void check_not_negative(std::string_view kernel, std::string_view name, float value);  // at least 0 and finite
void check_fraction(std::string_view kernel, std::string_view name, float value);      // at least 0 and below 1

}  // namespace lockstep::kernels
