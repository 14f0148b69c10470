#include "trainer/sync/sync_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/index.h"
#include "core/random.h"

namespace lockstep::trainer {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Replica {
  std::int64_t done = 0;
  std::int64_t pulled_at = 0;  // number of updates before its pull
  double ends = kNever;        // end of its current step; kNever: it is waiting
  double done_at = 0;          // end of its last step
};

class Clock {
 public:
  explicit Clock(const ArrivalRules& rules) : rules_(rules), replicas_(at(rules.replicas)) {}

  std::vector<Exchange> run() {
    for (std::int32_t r = 0; r < rules_.replicas; ++r) begin(r, 0);
    while (updates_ < rules_.pushes) {
      const std::int32_t first = first_to_end();
      push(first);
      release(replicas_[at(first)].done_at);
    }
    return without_idle_pulls();
  }

 private:
  void begin(std::int32_t r, double now) {
    replicas_[at(r)].ends = now + rules_.step_time(r, replicas_[at(r)].done + 1);
  }
  std::int32_t first_to_end() const {
    const auto first = std::min_element(replicas_.begin(), replicas_.end(),
                                        [](const Replica& a, const Replica& b) { return a.ends < b.ends; });
    LOCKSTEP_CHECK(first->ends < kNever, "the slowest replica never waits");
    return static_cast<std::int32_t>(first - replicas_.begin());
  }
  void push(std::int32_t r) {
    Replica& replica = replicas_[at(r)];
    replica.done_at = std::exchange(replica.ends, kNever);
    ++replica.done;
    order_.push_back({Exchange::Way::push, r, replica.done, updates_ - replica.pulled_at, replica.done_at});
    ++updates_;
  }
  // Lets the replicas that wait and may continue pull, in their order.
  void release(double now) {
    std::int64_t least = replicas_.front().done;
    for (const Replica& replica : replicas_) least = std::min(least, replica.done);
    for (std::int32_t r = 0; r < rules_.replicas; ++r) {
      Replica& replica = replicas_[at(r)];
      if (replica.ends < kNever || replica.done - least > rules_.staleness) continue;
      replica.pulled_at = updates_;
      order_.push_back({Exchange::Way::pull, r, replica.done + 1, 0, now});
      begin(r, now);
    }
  }
  std::vector<Exchange> without_idle_pulls() const {
    std::vector<Exchange> kept;
    for (const Exchange& one : order_) {
      if (one.way == Exchange::Way::push || one.step <= replicas_[at(one.replica)].done) kept.push_back(one);
    }
    return kept;
  }

  const ArrivalRules& rules_;
  std::vector<Replica> replicas_;
  std::vector<Exchange> order_;
  std::int64_t updates_ = 0;
};

}  // namespace

std::vector<Exchange> arrival_order(const ArrivalRules& rules) {
  LOCKSTEP_CHECK(rules.replicas > 0 && rules.pushes > 0, "replicas that push");
  return Clock(rules).run();
}

namespace {

constexpr double kMost = 1e9;

// A key of one mode and the destination of its number.
struct Field {
  SyncWay way;
  std::string_view key;
  double least;
  double most;
  bool whole;
  std::function<void(SyncOptions&, double)> set;
  std::function<double(const SyncOptions&)> get;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      {SyncWay::server, "servers", 1, 1024, true,
       [](SyncOptions& s, double v) { s.servers = static_cast<std::int32_t>(v); },
       [](const SyncOptions& s) { return static_cast<double>(s.servers); }},
      {SyncWay::average, "every", 1, kMost, true,
       [](SyncOptions& s, double v) { s.every = static_cast<std::int64_t>(v); },
       [](const SyncOptions& s) { return static_cast<double>(s.every); }},
      {SyncWay::diloco, "every", 1, kMost, true,
       [](SyncOptions& s, double v) { s.every = static_cast<std::int64_t>(v); },
       [](const SyncOptions& s) { return static_cast<double>(s.every); }},
      {SyncWay::diloco, "rate", 0, 100, false, [](SyncOptions& s, double v) { s.outer_rate = v; },
       [](const SyncOptions& s) { return s.outer_rate; }},
      {SyncWay::diloco, "momentum", 0, 1, false, [](SyncOptions& s, double v) { s.outer_momentum = v; },
       [](const SyncOptions& s) { return s.outer_momentum; }},
      {SyncWay::async, "staleness", 0, kMost, true,
       [](SyncOptions& s, double v) { s.staleness = static_cast<std::int64_t>(v); },
       [](const SyncOptions& s) { return static_cast<double>(s.staleness); }},
      {SyncWay::async, "jitter", 0, 100, false, [](SyncOptions& s, double v) { s.jitter = v; },
       [](const SyncOptions& s) { return s.jitter; }},
  };
  return all;
}

struct WayName {
  SyncWay way;
  std::string_view name;
};
constexpr std::array kWays{
    WayName{SyncWay::every_step, "allreduce"}, WayName{SyncWay::server, "server"}, WayName{SyncWay::root, "root"},
    WayName{SyncWay::average, "average"},      WayName{SyncWay::diloco, "diloco"}, WayName{SyncWay::async, "async"}};

constexpr std::string_view kAllowed =
    "allreduce, root, server:servers=S, average:every=H, diloco:every=H:rate=R:momentum=M, async:staleness=K:jitter=J";

core::Error refused(std::string_view item, std::string_view allowed) {
  return core::usage_error("cannot read '" + std::string(item) + "'; allowed: " + std::string(allowed));
}

bool read(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Removes and returns the part of `rest` before `between`.
std::string_view next_of(std::string_view& rest, char between) {
  const std::string_view item = rest.substr(0, rest.find(between));
  rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  return item;
}

void set_field(SyncOptions& sync, std::string_view item) {
  std::string_view value = item;
  const std::string_view key = next_of(value, '=');
  for (const Field& field : fields()) {
    if (field.way != sync.way || field.key != key) continue;
    double number = 0;
    const bool fits = read(value, number) && number >= field.least && number <= field.most;
    if (!fits || (field.whole && number != static_cast<double>(static_cast<std::int64_t>(number)))) {
      throw refused(item, fmt::format("{}={} from {:g} to {:g}", key, field.whole ? "a whole number" : "a number",
                                      field.least, field.most));
    }
    return field.set(sync, number);
  }
  throw refused(item, kAllowed);
}

}  // namespace

SyncOptions parse_sync(std::string_view text) {
  std::string_view rest = text;
  const std::string_view name = next_of(rest, ':');
  SyncOptions sync;
  const auto* const found =
      std::find_if(kWays.begin(), kWays.end(), [&](const WayName& known) { return known.name == name; });
  if (found == kWays.end()) throw refused(text, kAllowed);
  sync.way = found->way;
  while (!rest.empty()) set_field(sync, next_of(rest, ':'));
  return sync;
}

std::string text_of(const SyncOptions& sync) {
  std::string text;
  for (const WayName& known : kWays) {
    if (known.way == sync.way) text = known.name;
  }
  const SyncOptions usual;
  for (const Field& field : fields()) {
    const bool first = text.find(':') == std::string::npos;  // the first number of a mode is always printed
    if (field.way != sync.way || (!first && field.get(sync) == field.get(usual))) continue;
    text += fmt::format(":{}={:g}", field.key, field.get(sync));
  }
  return text;
}

double Straggler::factor_of(std::int32_t of_replica, std::int32_t replicas, std::uint64_t seed,
                            std::int64_t step) const {
  const auto drawn =
      core::hash64(seed, 0x57a9, static_cast<std::uint64_t>(step)) % static_cast<std::uint64_t>(replicas);
  const std::int32_t slow = replica >= 0 ? replica : static_cast<std::int32_t>(drawn);
  return of_replica == slow ? factor : 1;
}

Straggler parse_straggler(std::string_view text) {
  constexpr std::string_view kFields =
      "replica=R or any, factor=F from 1 to 1000, step_ms=T from 0 to 60000, separated by commas";
  Straggler straggler;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = next_of(rest, ',');
    std::string_view value = item;
    const std::string_view key = next_of(value, '=');
    double number = 0;
    const bool is_any = key == "replica" && value == "any";
    const bool is_number = read(value, number);
    if (!is_any && !is_number) throw refused(item, kFields);
    if (is_any || (key == "replica" && number >= 0 && number < 1024)) {
      straggler.replica = is_any ? -1 : static_cast<std::int32_t>(number);
    } else if (key == "factor" && number >= 1 && number <= 1000) {
      straggler.factor = number;
    } else if (key == "step_ms" && number >= 0 && number <= 60000) {
      straggler.step_ms = number;
    } else {
      throw refused(item, kFields);
    }
  }
  if (!straggler.given()) throw refused(text, kFields);
  return straggler;
}

std::string text_of(const Straggler& straggler) {
  std::string text = straggler.replica < 0 ? "replica=any" : fmt::format("replica={}", straggler.replica);
  text += fmt::format(",factor={:g}", straggler.factor);
  if (straggler.step_ms > 0) text += fmt::format(",step_ms={:g}", straggler.step_ms);
  return text;
}

namespace {

double own_ms(const ReplicaRun& run, std::int32_t replica, std::int64_t step) {
  return run.straggler.step_ms * run.straggler.factor_of(replica, run.replicas, run.seed, step);
}

// Time of the whole run in ms, in rounds at whose ends all replicas meet.
double in_rounds_ms(const ReplicaRun& run) {
  double whole = 0;
  std::vector<double> of_round(at(run.replicas));
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    for (std::int32_t r = 0; r < run.replicas; ++r) of_round[at(r)] += own_ms(run, r, step);
    if (!run.sync.agrees_after(step, run.steps)) continue;
    whole += *std::max_element(of_round.begin(), of_round.end());
    std::fill(of_round.begin(), of_round.end(), 0.0);
  }
  return whole;
}

// Time of the whole run in ms, with a server that serves replicas in the drawn order.
double in_order_ms(const ReplicaRun& run) {
  std::vector<double> ready;  // time of each replica's gradient
  for (std::int32_t r = 0; r < run.replicas; ++r) ready.push_back(own_ms(run, r, 1));
  double now = 0;
  for (const Exchange& exchange : order_of(run)) {
    double& own = ready[at(exchange.replica)];
    if (exchange.way == Exchange::Way::push) {
      now = std::max(now, own);
    } else {
      own = now + own_ms(run, exchange.replica, exchange.step);
    }
  }
  return now;
}

}  // namespace

std::vector<Exchange> order_of(const ReplicaRun& run) {
  const auto step_time = [&](std::int32_t replica, std::int64_t step) {
    core::Random random(core::hash64(run.seed, static_cast<std::uint64_t>(replica), static_cast<std::uint64_t>(step)));
    return run.straggler.factor_of(replica, run.replicas, run.seed, step) * (1 + run.sync.jitter * random.uniform());
  };
  return arrival_order({.replicas = run.replicas,
                        .pushes = run.steps * run.replicas,
                        .staleness = run.sync.staleness,
                        .step_time = step_time});
}

double predicted_step_ms(const ReplicaRun& run) {
  const double whole = run.sync.has_server_rank() ? in_order_ms(run) : in_rounds_ms(run);
  return whole / static_cast<double>(run.steps);
}

}  // namespace lockstep::trainer
