// The products that an action waits for.
#pragma once

#include <array>
#include <cstdint>

#include "schedules/schedule.h"

namespace lockstep::schedules {

// The results of a stage for a microbatch: its activations, or the gradient of its input. (Gradients of weights stay.)
enum class Product : std::uint8_t { activations, gradient };

struct Need {
  Product product = Product::activations;
  std::int32_t stage = 0;  // that makes it
  std::int32_t microbatch = 0;
};

struct Needs {
  std::array<Need, 2> all;
  std::size_t count = 0;
  const Need* begin() const { return all.data(); }
  const Need* end() const { return all.data() + count; }
};

// A forward needs the activations of the stage before; a backward, or the gradient of its input, those of its own stage
// and the gradient of the stage behind; a weight's gradient its stage's gradient of the input.
Needs needs_of(const Schedule& schedule, const Action& action);

// Whether the action gives a product, and which.
bool gives(const Action& action, Product product);

// Where products are kept in an array: one place each.
inline std::size_t place_of(const Schedule& schedule, const Need& need) {
  const auto m = static_cast<std::size_t>(schedule.num_microbatches);
  const auto stage = static_cast<std::size_t>(need.stage);
  return (2 * stage + (need.product == Product::gradient ? 1 : 0)) * m + static_cast<std::size_t>(need.microbatch);
}
inline std::size_t num_places(const Schedule& schedule) {
  return 2 * static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.num_microbatches);
}

}  // namespace lockstep::schedules
