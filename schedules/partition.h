// A row of pieces of work cut into neighbouring parts that are as even as can be: layers into stages, tokens into
// slices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::schedules {

// How many of the items each part has, so that the largest sum of `costs` over a part is as small as possible and,
// among those, the sum of the squares is. Each part has at least one item; costs are not negative. Takes parts x
// items^2 steps. `parts`: 1 to the number of items.
std::vector<std::int32_t> balanced_parts(std::span<const double> costs, std::int32_t parts);

}  // namespace lockstep::schedules
