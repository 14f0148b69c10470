// Splits a sequence of work items into contiguous parts that are as even as possible: layers into stages, tokens into
// slices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::schedules {

// Number of items in each part, so that the largest sum of `costs` over a part is minimal and, among those, the sum of
// the squares is. Each part has at least one item. `costs` are not negative; `parts` is 1 to the number of items. Takes
// parts x items^2 operations.
std::vector<std::int32_t> balanced_parts(std::span<const double> costs, std::int32_t parts);

}  // namespace lockstep::schedules
