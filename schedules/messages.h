// Data dependencies of actions, and the messages between ranks that follow from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "schedules/schedule.h"

namespace lockstep::schedules {

// The data dependencies of actions.

// Results of a stage for a microbatch: its activations, or the gradient of its input. (Weight gradients stay on the
// rank.)
enum class Product : std::uint8_t { activations, gradient };

struct Need {
  Product product = Product::activations;
  std::int32_t stage = 0;  // stage that makes the product
  std::int32_t microbatch = 0;
};

struct Needs {
  std::array<Need, 2> all;
  std::size_t count = 0;
  const Need* begin() const { return all.data(); }
  const Need* end() const { return all.data() + count; }
};

// A forward needs the activations of the previous stage. A backward (or input gradient) needs the activations of its
// own stage and the gradient of the next stage. A weight gradient needs the input gradient of its own stage.
Needs needs_of(const Schedule& schedule, const Action& action);

// True if the action makes that product.
bool gives(const Action& action, Product product);

// Index of a product in arrays with one entry per product.
inline std::size_t product_index(const Schedule& schedule, const Need& need) {
  const auto m = static_cast<std::size_t>(schedule.num_microbatches);
  const auto stage = static_cast<std::size_t>(need.stage);
  return (2 * stage + (need.product == Product::gradient ? 1 : 0)) * m + static_cast<std::size_t>(need.microbatch);
}
inline std::size_t num_products(const Schedule& schedule) {
  return 2 * static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.num_microbatches);
}

// The messages between ranks: activations and gradients that cross a stage boundary.

// The rank that receives the product of `action`; no value if the product stays on its rank.
std::optional<std::int32_t> receiver_of(const Schedule& schedule, const Action& action);

// The rank at the other end of a send or a receive.
std::int32_t peer_of(const Schedule& schedule, const Action& message);

// The payload of a send or a receive.
Need message_of(const Action& message);

bool has_messages(const Schedule& schedule);

// The schedule with SEND and RECV actions in place of those that it has: each message is sent right after the action
// that makes its payload and received right before the action that needs it.
Schedule with_messages(const Schedule& schedule);

}  // namespace lockstep::schedules
