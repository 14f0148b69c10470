// Cases for code paths that only shapes take that are too large for the families' own cases.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

inline constexpr std::int64_t kPastTheStash = 60000;  // columns of f32; 57344 fit in 224 KiB

std::vector<KernelCase> large_cases();

}  // namespace lockstep::kernels
