#include "bench/serve/serve_ranks.h"

#include <algorithm>

namespace lockstep::serve {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};  // well below any deadline of a world

// The order that rank 0 has read, as bytes to send.
struct Heard {
  Order order;
  bool is_order;
  bool is_end;
};

Heard listen(Orders& orders) {
  const auto said = orders.next(kPatience);
  if (const auto* order = std::get_if<Order>(&said)) return {*order, true, false};
  return {{}, false, std::holds_alternative<End>(said)};
}

}  // namespace

void serve_ranks(Orders* orders, transports::World& world,
                 const std::function<double(std::size_t, std::int64_t)>& us_of_call) {
  while (true) {
    const Heard mine = orders != nullptr ? listen(*orders) : Heard{};
    const Heard heard = transports::all_gather_value(world, mine)[0];
    if (heard.is_end) return;
    if (!heard.is_order) continue;
    std::vector<double> us;
    for (std::int64_t run = 0; run < heard.order.runs; ++run) {
      world.barrier();
      const double own = us_of_call(static_cast<std::size_t>(heard.order.case_index), heard.order.calls);
      const std::vector<double> all = transports::all_gather_value(world, own);
      us.push_back(*std::max_element(all.begin(), all.end()));
    }
    if (orders != nullptr) orders->answer(us);
  }
}

}  // namespace lockstep::serve
