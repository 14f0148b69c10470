// Choices of a router in a model that has diverged, for tests on every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/moe/router.h"

namespace lockstep::kernels {

// Returns the number of choices that are no experts, for logits some or all of which are not numbers.
inline std::int64_t choices_outside_of_experts(const RouterShape& shape, const Context& where) {
  const auto count = static_cast<std::size_t>(shape.tokens * shape.experts);
  std::vector<float> logits(count, std::nanf(""));
  for (std::size_t i = 0; i < count / 2; i += 2) logits[i] = static_cast<float>(i % 5);
  std::vector<std::int32_t> choices(static_cast<std::size_t>(shape.copies()), -1);
  std::vector<float> gates(choices.size());
  run(RouterForward{.shape = shape,
                    .logits = {logits.data(), core::DType::f32, static_cast<std::int64_t>(count)},
                    .choices = {choices.data(), core::DType::i32, shape.copies()},
                    .gates = {gates.data(), core::DType::f32, shape.copies()}},
      where);
  return std::count_if(choices.begin(), choices.end(),
                       [&](std::int32_t choice) { return choice < 0 || choice >= shape.experts; });
}
inline constexpr RouterShape kPlainRouter{.tokens = 6, .experts = 9, .top_k = 3};
inline constexpr RouterShape kLimitedRouter{.tokens = 6, .experts = 8, .top_k = 4, .groups = 4, .limit = 2};

}  // namespace lockstep::kernels
