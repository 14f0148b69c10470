#include "bench/serve/orders.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <variant>

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include "core/error.h"
#include "core/record_json.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

core::Error broken(const std::string& what) {
  return {core::Failure::internal, "--serve: " + what + ": " + std::strerror(errno)};
}

std::int64_t number_in(const Json& order, const char* name, std::int64_t least, std::int64_t most) {
  const auto found = order.find(name);
  if (found != order.end() && found->is_number_integer()) {
    const auto value = found->get<std::int64_t>();
    if (value >= least && value <= most) return value;
  }
  throw core::usage_error("order: \"" + std::string(name) +
                          "\" is missing or wrong; allowed: " + std::to_string(least) + " to " + std::to_string(most));
}

// `runs` sequential runs of a case, each of `calls` calls and timed as a whole.
struct Order {
  std::int64_t case_index;
  std::int64_t runs;
  std::int64_t calls;
};

Order parse_order(const std::string& line, std::size_t num_cases) {
  constexpr std::int64_t kMostRuns = 1 << 20;
  constexpr std::int64_t kMostCalls = std::int64_t{1} << 40;
  const Json order = core::parse_json<Json>(line, "order");
  if (!order.is_object()) throw core::usage_error("order: not a JSON object: " + line);
  return {number_in(order, "case", 0, static_cast<std::int64_t>(num_cases) - 1), number_in(order, "runs", 1, kMostRuns),
          number_in(order, "calls", 1, kMostCalls)};
}

struct Silence {};  // no order came in time
struct End {};      // no more orders will come

// The worker's standard input and output.
class Orders {
 public:
  // Writes the list of cases.
  Orders(const std::string& program, const std::vector<std::string>& cases) : num_cases_(cases.size()) {
    write_line(Json{{"serve", 1}, {"program", program}, {"cases", cases}}.dump());
  }

  // Answers an invalid order with an error, and waits for the next one.
  std::variant<Order, Silence, End> next(std::chrono::milliseconds patience) {
    while (true) {
      const std::size_t end = unread_.find('\n');
      if (end == std::string::npos) {
        if (ended_) return End{};
        if (!read_more(patience)) return Silence{};
        continue;
      }
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      try {
        return parse_order(line, num_cases_);
      } catch (const core::Error& error) {
        answer_error(error.what());
      }
    }
  }

  // Every time has the same number of characters: texts of other lengths would leave the heap in another state, and the
  // instruction count of the next run would include how long malloc searches there.
  void answer(std::span<const double> us_of_call) {
    write_line(fmt::format(R"({{"us":[{:.16e}]}})", fmt::join(us_of_call, ",")));
  }

  void answer_error(const std::string& why) { write_line(Json{{"error", why}}.dump()); }

 private:
  void write_line(const std::string& text) {
    const std::string line = text + "\n";
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t size = write(STDOUT_FILENO, line.data() + done, line.size() - done);
      if (size < 0 && errno != EINTR) throw broken("cannot answer");
      if (size > 0) done += static_cast<std::size_t>(size);
    }
  }

  bool read_more(std::chrono::milliseconds patience) {
    pollfd wanted{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(patience.count()));
    if (ready < 0 && errno != EINTR) throw broken("cannot wait for orders");
    if (ready <= 0) return false;
    std::array<char, 4096> piece;
    const ssize_t size = read(STDIN_FILENO, piece.data(), piece.size());
    if (size < 0) throw broken("cannot read orders");
    if (size == 0) ended_ = true;
    unread_.append(piece.data(), static_cast<std::size_t>(size));
    return true;
  }

  std::size_t num_cases_;
  bool ended_ = false;
  std::string unread_;
};

}  // namespace

// Not inlined, with a fixed name: the instruction counter finds the start and end of a run by it
// (ci/gate/deterministic.py).
extern "C" [[gnu::noinline]] double lockstep_served_run(const UsOfCall* us_of_call, std::size_t case_index,
                                                        std::int64_t calls) {
  return (*us_of_call)(case_index, calls);
}

void serve(const std::string& program, const std::vector<std::string>& cases, const UsOfCall& us_of_call) {
  constexpr std::chrono::milliseconds kPatience{60'000};
  Orders orders(program, cases);
  while (true) {
    const auto heard = orders.next(kPatience);
    if (std::holds_alternative<End>(heard)) return;
    if (std::holds_alternative<Silence>(heard)) continue;
    const auto& order = std::get<Order>(heard);
    try {
      std::vector<double> us;
      for (std::int64_t run = 0; run < order.runs; ++run) {
        us.push_back(lockstep_served_run(&us_of_call, static_cast<std::size_t>(order.case_index), order.calls));
      }
      orders.answer(us);
    } catch (const core::Error& error) {
      orders.answer_error(error.what());
    }
  }
}

void check_one(std::size_t count, const std::string& what) {
  if (count == 1) return;
  throw core::usage_error("--serve: " + std::to_string(count) + " " + what + "s; allowed: one");
}

namespace {

constexpr std::chrono::milliseconds kPatience{1000};  // well below any deadline of a world

// The order that rank 0 has read, as bytes to send.
struct Heard {
  Order order;
  bool is_order;
  bool is_end;
};

Heard listen(Orders& orders) {
  const auto heard = orders.next(kPatience);
  if (const auto* order = std::get_if<Order>(&heard)) return {*order, true, false};
  return {{}, false, std::holds_alternative<End>(heard)};
}

}  // namespace

void serve_ranks(const std::string& program, const std::vector<std::string>& cases, transports::World& world,
                 const UsOfCall& us_of_call) {
  std::optional<Orders> orders;
  if (world.rank() == 0) orders.emplace(program, cases);
  while (true) {
    const Heard mine = orders ? listen(*orders) : Heard{};
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
    if (orders) orders->answer(us);
  }
}

}  // namespace lockstep::serve
