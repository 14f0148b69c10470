#include "trainer/sync/sync_options.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/index.h"
#include "core/options.h"
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
    for (const Exchange& exchange : order_) {
      if (exchange.way == Exchange::Way::push || exchange.step <= replicas_[at(exchange.replica)].done)
        kept.push_back(exchange);
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

constexpr std::int64_t kMost = 1'000'000'000;

using core::OptionText;

// A number of one mode.
struct SyncField {
  SyncWay way;
  core::Field<SyncOptions> field;
  double (*get)(const SyncOptions&);
};

constexpr std::array kFields{
    SyncField{SyncWay::server,
              {"servers", "1 to 1024", [](SyncOptions& s, const OptionText& v) { s.servers = v.int32(1, 1024); }},
              [](const SyncOptions& s) { return static_cast<double>(s.servers); }},
    SyncField{SyncWay::average,
              {"every", "steps", [](SyncOptions& s, const OptionText& v) { s.every = v.integer(1, kMost); }},
              [](const SyncOptions& s) { return static_cast<double>(s.every); }},
    SyncField{SyncWay::diloco,
              {"every", "steps", [](SyncOptions& s, const OptionText& v) { s.every = v.integer(1, kMost); }},
              [](const SyncOptions& s) { return static_cast<double>(s.every); }},
    SyncField{SyncWay::diloco,
              {"rate", "0 to 100", [](SyncOptions& s, const OptionText& v) { s.outer_rate = v.number_from(0, 100); }},
              [](const SyncOptions& s) { return s.outer_rate; }},
    SyncField{
        SyncWay::diloco,
        {"momentum", "0 to 1", [](SyncOptions& s, const OptionText& v) { s.outer_momentum = v.number_from(0, 1); }},
        [](const SyncOptions& s) { return s.outer_momentum; }},
    SyncField{SyncWay::async,
              {"staleness", "steps", [](SyncOptions& s, const OptionText& v) { s.staleness = v.integer(0, kMost); }},
              [](const SyncOptions& s) { return static_cast<double>(s.staleness); }},
    SyncField{SyncWay::async,
              {"jitter", "0 to 100", [](SyncOptions& s, const OptionText& v) { s.jitter = v.number_from(0, 100); }},
              [](const SyncOptions& s) { return s.jitter; }},
};

struct WayName {
  SyncWay way;
  std::string_view name;
};
constexpr std::array kWays{
    WayName{SyncWay::every_step, "allreduce"}, WayName{SyncWay::server, "server"}, WayName{SyncWay::root, "root"},
    WayName{SyncWay::average, "average"},      WayName{SyncWay::diloco, "diloco"}, WayName{SyncWay::async, "async"}};

constexpr const char* kAllowed =
    "allreduce, root, server:servers=S, average:every=H, diloco:every=H:rate=R:momentum=M, async:staleness=K:jitter=J";

}  // namespace

SyncOptions parse_sync(std::string_view text) {
  const std::vector<std::string_view> parts = core::split(text, ':');
  const auto* const found =
      std::find_if(kWays.begin(), kWays.end(), [&](const WayName& known) { return known.name == parts.front(); });
  if (found == kWays.end()) throw OptionText{"", std::string(text)}.refused("not known", kAllowed);
  SyncOptions sync;
  sync.way = found->way;
  std::vector<core::Field<SyncOptions>> table;
  for (const SyncField& row : kFields) {
    if (row.way == sync.way) table.push_back(row.field);
  }
  core::read_fields<SyncOptions>(sync, "", std::span(parts).subspan(1), table);
  return sync;
}

std::string text_of(const SyncOptions& sync) {
  std::string text;
  for (const WayName& known : kWays) {
    if (known.way == sync.way) text = known.name;
  }
  const SyncOptions usual;
  for (const SyncField& row : kFields) {
    const bool first = text.find(':') == std::string::npos;  // the first number of a mode is always printed
    if (row.way != sync.way || (!first && row.get(sync) == row.get(usual))) continue;
    text += fmt::format(":{}={:g}", row.field.name, row.get(sync));
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
  constexpr std::array kFieldsOf{
      core::Field<Straggler>{
          "replica", "a replica or any",
          [](Straggler& s, const OptionText& v) { s.replica = v.text == "any" ? -1 : v.int32(0, 1023); }},
      core::Field<Straggler>{"factor", "1 to 1000",
                             [](Straggler& s, const OptionText& v) { s.factor = v.number_from(1, 1000); }},
      core::Field<Straggler>{"step_ms", "0 to 60000",
                             [](Straggler& s, const OptionText& v) { s.step_ms = v.number_from(0, 60000); }}};
  Straggler straggler;
  core::read_fields<Straggler>(straggler, "", core::split(text, ','), kFieldsOf);
  if (straggler.given()) return straggler;
  throw OptionText{"", std::string(text)}.refused("slows nothing down", "factor=F above 1, or step_ms=T above 0");
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
